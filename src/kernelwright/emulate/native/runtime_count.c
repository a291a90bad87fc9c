/* Counts what a warp's accesses touch: sectors of global and local memory, wavefronts of shared memory, atomics' targets.
 *
 * A sector is 32 aligned bytes, of an address that is counted from its allocation as if that began on 512 bytes, as
 * cudaMalloc's do: host addresses, which differ from run to run, change no figure. A wavefront is one pass through the 32
 * banks of 4 bytes: lanes are served 32, 16 or 8 at a time (accesses of up to 4, of 8 and of 16 bytes), and each bank gives
 * one word a pass; lanes that want the same word share it. Atomics on one address take turns, in either memory, and each
 * turn moves its sectors anew (measured: 8.39 a request for 16 bins at random, H200, 2026-11). Local memory lies interleaved: word i of
 * lane l at (32 i + l) * 4. Source: CUDA C++ best practices guide 13.0, 10.2; Nsight Compute's kernel profiling guide.
 */
#include "runtime_count.h"
#include <stdlib.h>
#include <string.h>

#define EACH(l, mask) for (uint32_t rest_ = (mask), l; rest_ && (l = (uint32_t)__builtin_ctz(rest_), 1); rest_ &= rest_ - 1)
enum { PAGE_BITS = 12, SECTOR_BITS = 5, WORDS = 1024, FIRST_SLOTS = 256 };

/* 4 KiB of device memory: which of its 128 sectors were read and written; atomics on each of its words, once there are any. */
typedef struct page { uint64_t key, read[2], written[2]; uint32_t *hits; } page;
/* The allocation that an access last fell into. */
typedef struct span { uint64_t base, bytes; } span;

struct kw_counts {
  uint64_t *cells;
  uint32_t n_cells;
  page *slots;
  uint64_t n_slots, used;
  page *last;
  span *spans;             /* one an access */
  uint32_t n_spans;
};

enum { READS = 1, WRITES = 2 };

static uint64_t slot_of(uint64_t key, uint64_t n) { return (key * 0x9e3779b97f4a7c15ull >> 20) & (n - 1); }

static void grow(kw_counts *c) {
  uint64_t n = 2 * c->n_slots;
  page *wider = calloc(n, sizeof *wider);
  if (!wider) abort();
  for (uint64_t i = 0; i < c->n_slots; i++) {
    if (!c->slots[i].key) continue;
    uint64_t at = slot_of(c->slots[i].key, n);
    while (wider[at].key) at = (at + 1) & (n - 1);
    wider[at] = c->slots[i];
  }
  free(c->slots);
  c->slots = wider;
  c->n_slots = n;
}

static page *page_of(kw_counts *c, uint64_t key) {
  if (c->last && c->last->key == key) return c->last;
  if (2 * c->used >= c->n_slots) grow(c);
  uint64_t at = slot_of(key, c->n_slots);
  while (c->slots[at].key && c->slots[at].key != key) at = (at + 1) & (c->n_slots - 1);
  if (!c->slots[at].key) {
    c->slots[at].key = key;
    c->used++;
  }
  return c->last = &c->slots[at];
}

kw_counts *kw_new_counts(const kw_run *r) {
  if (!r->cells) return NULL;
  kw_counts *c = calloc(1, sizeof *c);
  if (!c) abort();
  c->n_cells = r->n_cells;
  c->n_spans = r->n_accesses;
  c->n_slots = FIRST_SLOTS;
  c->cells = calloc(r->n_cells + 1, sizeof *c->cells);
  c->slots = calloc(c->n_slots, sizeof *c->slots);
  c->spans = calloc(r->n_accesses + 1, sizeof *c->spans);
  if (!c->cells || !c->slots || !c->spans) abort();
  return c;
}

uint64_t *kw_cells_of(kw_counts *c) { return c->cells; }

static void free_counts(kw_counts *c) {
  for (uint64_t i = 0; i < c->n_slots; i++) free(c->slots[i].hits);
  free(c->slots);
  free(c->cells);
  free(c->spans);
  free(c);
}

void kw_merge_counts(kw_run *r, kw_counts *c) {
  if (!r->counts) {
    r->counts = c;
    return;
  }
  kw_counts *whole = r->counts;
  for (uint32_t i = 0; i < c->n_cells; i++) whole->cells[i] += c->cells[i];
  for (uint64_t i = 0; i < c->n_slots; i++) {
    page *from = &c->slots[i];
    if (!from->key) continue;
    page *to = page_of(whole, from->key);
    for (int k = 0; k < 2; k++) {
      to->read[k] |= from->read[k];
      to->written[k] |= from->written[k];
    }
    if (!from->hits) continue;
    if (!to->hits) {
      to->hits = from->hits;
      from->hits = NULL;
      continue;
    }
    for (int k = 0; k < WORDS; k++) to->hits[k] += from->hits[k];
  }
  free_counts(c);
}

void kw_finish_counts(kw_run *r) {
  kw_counts *c = r->counts;
  if (!c) return;
  memcpy(r->cells, c->cells, c->n_cells * sizeof *r->cells);
  for (uint64_t i = 0; i < c->n_slots; i++) {
    const page *p = &c->slots[i];
    if (!p->key) continue;
    for (int k = 0; k < 2; k++) {
      r->sectors_read += (uint64_t)__builtin_popcountll(p->read[k]);
      r->sectors_written += (uint64_t)__builtin_popcountll(p->written[k]);
    }
    for (int k = 0; p->hits && k < WORDS; k++) {
      r->atomics += p->hits[k];
      r->atomic_addresses += p->hits[k] != 0;
      if (p->hits[k] > r->hottest) r->hottest = p->hits[k];
    }
  }
  free_counts(c);
  r->counts = NULL;
}

/* ---- global memory ----------------------------------------------------------------------------------------------- */

/* The address as if its allocation began on 512 bytes; the top bits keep apart what was moved differently. */
static inline uint64_t canonical(span *known, uint64_t a) {
  if (a - known->base >= known->bytes) {
    uint64_t base, bytes;
    int kind;
    if (!kw_range_of(a, &base, &bytes, &kind)) return a;
    *known = (span){base, bytes};
  }
  uint64_t off = known->base & 511;
  return off ? (a - off) | off << 52 : a;
}

static void touch(kw_counts *c, uint64_t sector, int how) {
  page *p = page_of(c, (sector >> (PAGE_BITS - SECTOR_BITS)) + 1);
  uint64_t bit = 1ull << (sector & 63);
  int half = (int)(sector >> 6 & 1);
  if (how & READS) p->read[half] |= bit;
  if (how & WRITES) p->written[half] |= bit;
}

/* How many of the values are different; they may come back sorted. Ascending lanes, the common case, take one pass. */
static uint32_t distinct(uint64_t *v, uint32_t n) {
  uint32_t count = n > 0, rising = 1;
  for (uint32_t i = 1; i < n; i++) {
    count += v[i] != v[i - 1];
    rising &= v[i] >= v[i - 1];
  }
  if (rising) return count;
  for (uint32_t i = 1; i < n; i++) {
    uint64_t x = v[i];
    uint32_t j = i;
    for (; j && v[j - 1] > x; j--) v[j] = v[j - 1];
    v[j] = x;
  }
  count = 1;
  for (uint32_t i = 1; i < n; i++) count += v[i] != v[i - 1];
  return count;
}

/* Atomics of a warp on one address take turns; each turn moves the sectors of those that take part. `start` is sorted. */
static uint32_t sectors_in_turns(const uint64_t *start, uint32_t n) {
  uint32_t total = 0, run = 0, most = 0;
  for (uint32_t i = 0; i < n; i++) {
    run = i && start[i] == start[i - 1] ? run + 1 : 1;
    if (i && start[i] >> SECTOR_BITS != start[i - 1] >> SECTOR_BITS) {
      total += most;
      most = 0;
    }
    most = run > most ? run : most;
  }
  return total + most;
}

/* One element after the other in a full warp, within one allocation: the commonest pattern, counted at once. */
static int count_dense(kw_counts *c, span *known, const uint64_t *a, uint64_t *cells, uint32_t bytes, int how) {
  uint64_t apart = 0;
  for (uint32_t l = 0; l < KW_LANES; l++) apart |= a[l] ^ (a[0] + (uint64_t)l * bytes);
  uint64_t first = canonical(known, a[0]);
  if (apart || a[0] - known->base >= known->bytes || a[KW_LANES - 1] - known->base >= known->bytes) return 0;
  uint64_t sector = first >> SECTOR_BITS, last = (first + KW_LANES * bytes - 1) >> SECTOR_BITS;
  cells[KW_GLOBAL_REQUESTS]++;
  cells[KW_GLOBAL_DISTINCT] += last - sector + 1;
  cells[KW_GLOBAL_SECTORS] += last - sector + 1;
  cells[KW_GLOBAL_IDEAL] += bytes;
  for (; sector <= last; sector++) touch(c, sector, how);
  return 1;
}

/* Ideal is what ncu takes for it: the sectors that the lanes' bytes would fill, or those touched where they are fewer. */
static void count_global(kw_warp *w, uint32_t mask, const uint64_t *a, uint32_t access, uint64_t *cells, uint32_t bytes,
                         int how, int each) {
  kw_counts *c = w->counts;
  span *known = &c->spans[access];
  if (mask == ~0u && !each && count_dense(c, known, a, cells, bytes, how)) return;
  uint64_t start[KW_LANES], sector[KW_LANES];
  uint32_t n = 0;
  EACH(l, mask) {
    start[n] = canonical(known, a[l]);
    sector[n] = start[n] >> SECTOR_BITS;
    if (!n || sector[n] != sector[n - 1]) touch(c, sector[n], how);
    n++;
  }
  if (!n) return;
  uint32_t sectors = distinct(sector, n);
  cells[KW_GLOBAL_REQUESTS]++;
  cells[KW_GLOBAL_DISTINCT] += sectors;
  uint32_t filled = (n * bytes + 31) / 32;
  cells[KW_GLOBAL_IDEAL] += filled < sectors ? filled : sectors;
  if (each) distinct(start, n);
  cells[KW_GLOBAL_SECTORS] += each ? sectors_in_turns(start, n) : sectors;
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

/* Passes that the banks need for words that lanes `among` begin at; equal words count once, or each time for atomics. */
static uint32_t passes(const uint32_t *a, uint32_t among, uint32_t words, int each) {
  uint32_t held[32][KW_LANES], depth[32] = {0}, most = 0;
  EACH(l, among) {
    for (uint32_t k = 0; k < words; k++) {
      uint32_t word = (a[l] >> 2) + k, bank = word & 31, i = 0, n = depth[bank];
      if (!each)
        while (i < n && held[bank][i] != word) i++;
      else
        i = n;
      if (i < n) continue;
      held[bank][n] = word;
      depth[bank] = n + 1;
      most = n + 1 > most ? n + 1 : most;
    }
  }
  return most;
}

/* Whether all of the lanes agree with the neighbour that is `apart` away, where both are there. */
static int agree(const uint32_t *a, uint32_t among, uint32_t apart) {
  uint32_t differ = 0;
  EACH(l, among) if (among >> (l ^ apart) & 1) differ |= a[l] ^ a[l ^ apart];
  return !differ;
}

/* How many lanes are served together: twice as many as else where a wide load repeats each address next door, or next but
 * one (measured: 16 patterns of LDS.64 and LDS.128, H200, 2026-11; stores and ldmatrix never do). */
static uint32_t served(const uint32_t *a, uint32_t mask, uint32_t words, int merges) {
  uint32_t lanes = KW_LANES / words;
  if (!merges || words == 1) return lanes;
  for (uint32_t first = 0; first < KW_LANES; first += 2 * lanes) {
    uint32_t among = mask & (2 * lanes == KW_LANES ? ~0u : ((1u << 2 * lanes) - 1) << first);
    if (!agree(a, among, 1) && !agree(a, among, 2)) return lanes;
  }
  return 2 * lanes;
}

/* The two commonest patterns of a full warp, one element after the other and one for all: no conflict in either. */
static int is_plain(const uint32_t *a, uint32_t bytes) {
  uint32_t apart = 0, differ = 0;
  for (uint32_t l = 0; l < KW_LANES; l++) {
    apart |= a[l] ^ (a[0] + l * bytes);
    differ |= a[l] ^ a[0];
  }
  return !differ ? 2 : !apart;
}

/* Ideal is a wavefront for each group that is served; "filled" what ncu takes for ideal, by the lanes' bytes alone. */
static void count_shared(uint32_t mask, const uint32_t *a, uint64_t *cells, uint32_t bytes, int each, int merges) {
  if (!mask) return;
  uint32_t words = bytes > 4 ? bytes / 4 : 1, taken = 0, ideal = 0;
  int plain = mask == ~0u && !each ? is_plain(a, bytes) : 0;
  uint32_t lanes = plain == 1 ? KW_LANES / words : served(a, mask, words, merges);
  if (plain) taken = ideal = KW_LANES / lanes;
  else for (uint32_t first = 0; first < KW_LANES; first += lanes) {
    uint32_t among = mask & (lanes == KW_LANES ? ~0u : ((1u << lanes) - 1) << first);
    if (!among) continue;
    taken += passes(a, among, words, each);
    ideal++;
  }
  cells[KW_SHARED_REQUESTS]++;
  cells[KW_SHARED_WAVEFRONTS] += taken;
  cells[KW_SHARED_IDEAL] += ideal;
  uint32_t filled = ((uint32_t)__builtin_popcount(mask) * bytes + 127) / 128;
  cells[KW_SHARED_FILLED] += filled < taken ? filled : taken;
}

/* ---- local memory ------------------------------------------------------------------------------------------------ */

static void count_local(uint32_t mask, const uint32_t *a, uint64_t *cells, uint32_t bytes) {
  uint64_t sector[KW_LANES];
  uint32_t words = bytes > 4 ? bytes / 4 : 1, total = 0;
  if (!mask) return;
  for (uint32_t k = 0; k < words; k++) {
    uint32_t n = 0;
    EACH(l, mask) sector[n++] = ((uint64_t)((a[l] >> 2) + k) * 128 + 4 * l) >> SECTOR_BITS;
    total += distinct(sector, n);
  }
  cells[KW_LOCAL_REQUESTS]++;
  cells[KW_LOCAL_SECTORS] += total;
}

/* ---- what generated code calls ------------------------------------------------------------------------------------ */

/* Generic addresses by the memory they lie in; shared and local ones as offsets. Parameters are in no memory that counts. */
static void count_generic(kw_warp *w, uint32_t mask, uint32_t access, uint64_t *cells, uint32_t bytes, int how,
                          int each, int merges) {
  uint32_t shared = 0, local = 0, global = 0, offset[KW_LANES], depot[KW_LANES];
  uint64_t locals = w->local_stride * KW_LANES, params = w->block->run->parameter_bytes;
  EACH(l, mask) {
    uint64_t a = w->a[l], in_shared = a - (uint64_t)w->shared, in_local = a - (uint64_t)w->local;
    if (in_shared < w->total_shared) {
      shared |= 1u << l;
      offset[l] = (uint32_t)in_shared;
    } else if (in_local < locals) {
      local |= 1u << l;
      depot[l] = (uint32_t)(in_local % w->local_stride);
    } else if (a - (uint64_t)w->params >= params) {
      global |= 1u << l;
    }
  }
  count_global(w, global, w->a, access, cells, bytes, how, each);
  count_shared(shared, offset, cells, bytes, each, merges);
  count_local(local, depot, cells, bytes);
}

static void count(kw_warp *w, uint32_t mask, uint32_t access, uint32_t first, uint32_t bytes, int space, int how,
                  int each, int merges) {
  uint64_t *cells = w->cells + first;
  if (space == KW_IN_GLOBAL) count_global(w, mask, w->a, access, cells, bytes, how, each);
  else if (space == KW_IN_SHARED) count_shared(mask, (const uint32_t *)w->a, cells, bytes, each, merges);
  else if (space == KW_IN_LOCAL) count_local(mask, (const uint32_t *)w->a, cells, bytes);
  else if (space == KW_IN_GENERIC) count_generic(w, mask, access, cells, bytes, how, each, merges);
}

KW_API void kw_count_load(kw_warp *w, uint32_t mask, uint32_t access, uint32_t first, uint32_t bytes, int space) {
  count(w, mask, access, first, bytes, space, READS, 0, 1);
}

KW_API void kw_count_store(kw_warp *w, uint32_t mask, uint32_t access, uint32_t first, uint32_t bytes, int space) {
  count(w, mask, access, first, bytes, space, WRITES, 0, 0);
}

static void count_atomic(kw_warp *w, uint32_t mask, uint32_t access, uint32_t first, uint32_t bytes, int space,
                         int each) {
  count(w, mask, access, first, bytes, space, READS | WRITES, each, 0);
  if (space == KW_IN_SHARED || space == KW_IN_LOCAL) return;
  kw_counts *c = w->counts;
  EACH(l, mask) {
    uint64_t a = w->a[l];
    if (space == KW_IN_GENERIC && a - (uint64_t)w->shared < w->total_shared) continue;
    a = canonical(&c->spans[access], a);
    page *p = page_of(c, (a >> PAGE_BITS) + 1);
    if (!p->hits && !(p->hits = calloc(WORDS, sizeof *p->hits))) abort();
    p->hits[a >> 2 & (WORDS - 1)]++;
  }
}

KW_API void kw_count_atomic(kw_warp *w, uint32_t mask, uint32_t access, uint32_t first, uint32_t bytes, int space) {
  count_atomic(w, mask, access, first, bytes, space, 1);
}

/* One is added (ATOMS.POPC.INC): lanes of one address of shared memory are counted at once, without taking turns. */
KW_API void kw_count_increment(kw_warp *w, uint32_t mask, uint32_t access, uint32_t first, uint32_t bytes, int space) {
  count_atomic(w, mask, access, first, bytes, space, space != KW_IN_SHARED);
}

/* ldmatrix: the rows of each 8 x 8 matrix are 16 bytes, at the addresses of 8 lanes: one wavefront if no banks clash. */
KW_API void kw_count_matrix(kw_warp *w, uint32_t mask, uint32_t access, uint32_t first, uint32_t count_, int space) {
  uint32_t asked = count_ == 4 ? ~0u : (1u << 8 * count_) - 1;
  (void)mask;
  count(w, asked, access, first, 16, space, READS, 0, 0);
}

/* cp.async: sources in w->a, targets in d[2]. */
KW_API void kw_count_copy(kw_warp *w, uint32_t mask, uint32_t access, uint32_t first, uint32_t bytes, int space) {
  (void)space;
  count_global(w, mask, w->a, access, w->cells + first, bytes, READS, 0);
  count_shared(mask, (const uint32_t *)w->d[2], w->cells + first, bytes, 0, 0);
}

/* brx.idx: whether the lanes that jump go different ways; their indices are in d[0]. */
KW_API void kw_count_targets(kw_warp *w, uint32_t mask, uint32_t cell) {
  const uint32_t *index = (const uint32_t *)w->d[0];
  uint32_t apart = 0, first = index[__builtin_ctz(mask)];
  EACH(l, mask) apart |= index[l] ^ first;
  w->cells[cell] += apart != 0;
}
