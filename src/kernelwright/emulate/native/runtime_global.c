/* Judges accesses of global memory: races within and between blocks, and reads past a read-only cache.
 *
 * The rule: a finding only where the CUDA model orders nothing. As in runtime_shadow.c, atomics do not race with one
 * another, and lanes of one warp and volatile with volatile are observations; so is a store of the value that is there
 * already, by which many a right program sets a flag. Where blocks run in parallel each access holds the stripes of memory
 * that it touches, so that whether a word raced does not depend on who came first.
 */
#include "runtime_global.h"
#include "runtime_block.h"
#include <immintrin.h>
#include <string.h>

static const kw_site *site_of(const kw_warp *w, uint32_t site) { return &w->block->run->sites[site]; }

static const kw_record *record_of(const kw_warp *w, uint64_t entry) {
  const kw_watch *v = w->block->run->watch;
  return &v->records[(uint32_t)(entry >> 32) - v->first];
}

static uint64_t floor_of(const kw_warp *w) { return (uint64_t)w->block->run->watch->first << 32; }

uint32_t kw_new_global_event(kw_warp *w, uint32_t site) {
  kw_shadow *s = w->shadow;
  kw_watch *v = w->block->run->watch;
  uint32_t time = kw_event(w, site);
  if (s->numbers->next == s->numbers->end && !kw_more_numbers(v, s->numbers)) return 0;
  uint32_t event = s->numbers->next++;
  v->records[event - v->first] = (kw_record){(uint32_t)w->block->index, site, time};
  s->global_seen[w->index * s->n_sites + site] = event;
  return event;
}

/* ---- stripes */

static uint64_t stripes_of(const kw_warp *w, uint32_t mask, uint32_t bytes) {
  uint64_t stripes = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint64_t a = w->a[__builtin_ctz(rest)];
    stripes |= 1ull << (a >> 14 & (KW_STRIPES - 1)) | 1ull << ((a + bytes - 1) >> 14 & (KW_STRIPES - 1));
  }
  return stripes;
}

static uint64_t lock_stripes(kw_watch *v, uint64_t stripes) {
  for (uint64_t rest = stripes; rest; rest &= rest - 1)
    while (atomic_exchange_explicit(&v->stripes[__builtin_ctzll(rest)], 1, memory_order_acquire)) _mm_pause();
  return stripes;
}

void kw_unlock_stripes(kw_watch *v, uint64_t held) {
  for (; held; held &= held - 1) atomic_store_explicit(&v->stripes[__builtin_ctzll(held)], 0, memory_order_release);
}

/* ---- reports */

/* Whether the code of `other` comes first: as in runtime_shadow.c, except that blocks know nothing of one another. */
static int comes_first(const kw_warp *w, const kw_record *other, uint32_t site) {
  const kw_shadow *s = w->shadow;
  const uint32_t *first = s->first + (uint64_t)w->index * s->n_sites;
  uint32_t since = s->interval[w->index];
  if (other->block == (uint32_t)w->block->index && other->site != site && first[other->site] >= since && first[site] >= since)
    return first[other->site] < first[site];
  int reads = site_of(w, site)->access == KW_LOAD, other_reads = site_of(w, other->site)->access == KW_LOAD;
  return reads != other_reads ? reads : other->site <= site;
}

static void describe(kw_finding *f, const kw_site *site, uint64_t address) {
  f->bytes = (uint32_t)site->bytes;
  f->access = site->access;
  f->lane_space = KW_IN_GLOBAL;
  f->address = address;
  f->has_allocation = kw_find(address, &f->allocation) == 1;
  f->offset = (int64_t)(address - f->allocation.base);
}

static void report(kw_warp *w, int cause, uint32_t lane, uint32_t site, uint64_t address, uint64_t entry) {
  const kw_record *other = record_of(w, entry);
  uint32_t mine = w->index * KW_LANES + lane, theirs = (uint32_t)entry & 1023;
  int swaps = cause != KW_STALE_READ && !comes_first(w, other, site);
  kw_finding *f = kw_report(w, cause, (int)(swaps ? other->site : site), 0, address, 0);
  if (!f || f->count != 1) return;
  describe(f, site_of(w, swaps ? other->site : site), address);
  f->thread = swaps ? theirs : mine;
  f->block = swaps ? other->block : w->block->index;
  f->other_thread = swaps ? mine : theirs;
  f->other_block = swaps ? (uint32_t)w->block->index : other->block;
  f->other_site = (int32_t)(swaps ? site : other->site);
}

/* ---- judging */

typedef struct now { uint64_t floor, full, clock; } now;

static now now_of(const kw_warp *w) {
  return (now){floor_of(w), (uint64_t)w->shadow->global_full << 32, (uint64_t)w->global_clock << 32};
}

/* A strong access sees another warp's strong write: what that one published before, happened before. */
static void acquire(kw_warp *w, uint64_t entry) {
  kw_shadow *s = w->shadow;
  const kw_record *other = record_of(w, entry);
  if (!site_of(w, other->site)->strong || w->block->run->watch->parallel) return;
  s->acquired[w->index] = s->numbers->next;
  if (other->block == (uint32_t)w->block->index && s->fenced)
    for (uint32_t v = 0; v < s->warps; v++)
      if (s->fence[v] > s->known[w->index][v]) s->known[w->index][v] = s->fence[v];
}

/* Whether an entry stands against an access of this warp at `site`, all orders considered. */
static int against(const kw_warp *w, uint64_t entry, uint64_t mine, const kw_site *about, const now *n) {
  if (!KW_STANDS(entry, mine, n->floor, n->full, n->clock)) return 0;
  const kw_record *other = record_of(w, entry);
  uint32_t warp = entry >> 5 & 31;
  int theirs = site_of(w, other->site)->strong;
  if (about->strong && theirs && about->strong + theirs > 2) return 0;
  if (other->block != (uint32_t)w->block->index) {
    /* What was seen of a flag or a counter is behind whoever saw it: the last block may reset its ticket plainly. */
    if (theirs && (uint32_t)(entry >> 32) < w->shadow->acquired[w->index]) return 0;
    return !kw_is_published(w, other, warp);
  }
  return warp == w->index || other->time >= w->shadow->known[w->index][warp];
}

static void judge_one(kw_warp *w, uint32_t lane, uint32_t site, uint64_t address, uint64_t entry, uint64_t mine,
                      int changes_nothing) {
  int same_warp = !((entry ^ mine) & (KW_BLOCK_OF | KW_WARP_OF));
  int both_strong = site_of(w, site)->strong && site_of(w, record_of(w, entry)->site)->strong;
  if (same_warp && changes_nothing) return;
  report(w, same_warp || both_strong || changes_nothing ? KW_TOLERATED_GLOBAL_RACE : KW_GLOBAL_RACE, lane, site, address,
         entry);
}

/* What a lane stores, seen as memory will hold it. */
static const uint8_t *stored(const uint8_t *data, uint32_t step, uint32_t lane, uint32_t at) {
  return data + (at / step * KW_LANES + lane) * step + at % step;
}

/* A store that leaves what is there: of a value in memory, or of one that another lane of this instruction stores too. */
static int changes_nothing(const kw_warp *w, uint32_t mask, uint32_t lane, uint32_t at, uint32_t size, uint64_t entry,
                           uint64_t mine, const uint8_t *data, uint32_t step) {
  uint32_t other = entry & 31;
  const uint8_t *value = stored(data, step, lane, at);
  if (entry >> 5 == mine >> 5 && mask >> other & 1 && w->a[other] == w->a[lane])
    return !memcmp(value, stored(data, step, other, at), size);
  return !memcmp(value, (const void *)(w->a[lane] + at), size);
}

static void remember_reader(const kw_cover *c, uint64_t g, uint64_t mine, uint64_t floor) {
  uint64_t r = c->reader[g], q = c->second[g];
  if (r >= floor && ((r ^ mine) & (KW_BLOCK_OF | KW_WARP_OF)) &&
      (((r ^ mine) & KW_BLOCK_OF) || !(q >= floor && (q ^ mine) & KW_BLOCK_OF)))
    c->second[g] = r;
  c->reader[g] = mine;
}

/* One lane's access, judged and, where it `enters`, entered. */
static void judge_lane(kw_warp *w, const kw_cover *c, uint32_t mask, uint32_t lane, uint32_t site, uint32_t bytes,
                       uint64_t entry, const uint8_t *data, uint32_t step, int enters) {
  const kw_site *about = site_of(w, site);
  uint64_t mine = entry | lane, first = (w->a[lane] - c->base) >> c->shift;
  uint32_t size = 1u << c->shift, n = bytes >> c->shift ? bytes >> c->shift : 1;
  for (uint32_t k = 0; k < n; k++) {
    uint64_t g = first + k, address = w->a[lane] + ((uint64_t)k << c->shift);
    uint64_t seen[3] = {c->writer[g], c->reader ? c->reader[g] : 0, c->reader ? c->second[g] : 0};
    now n_ = now_of(w);
    if (about->strong && (about->access == KW_LOAD || about->parts & KW_RETURNS) && seen[0] >= n_.floor &&
        (seen[0] ^ mine) & (KW_BLOCK_OF | KW_WARP_OF))
      acquire(w, seen[0]);
    uint64_t bad = 0;
    for (int i = 0; i < 3 && !bad; i++) {
      if (seen[i] < n_.floor) continue;
      /* A load stands against writers only, and atomics enter as readers too. */
      if (i && about->access == KW_LOAD && !(seen[0] & seen[i] & KW_UPDATES)) continue;
      if (against(w, seen[i], mine, about, &n_)) bad = seen[i];
    }
    if (bad)
      judge_one(w, lane, site, address, bad, mine,
                about->access == KW_STORE && data &&
                    changes_nothing(w, mask, lane, k << c->shift, size < bytes ? size : bytes, bad, mine, data, step));
    else if (about->read_only && seen[0] >= n_.floor)
      report(w, KW_STALE_READ, lane, site, address, seen[0]);
    if (!enters) continue;
    if (about->access != KW_LOAD) c->writer[g] = mine;
    if (about->access != KW_STORE && c->reader) remember_reader(c, g, mine, n_.floor);
  }
}

/* Atomics that meet nothing but atomics, the common case, and learn nothing from them; the lanes that are left. */
static uint32_t update_lanes(kw_warp *w, const kw_range *range, uint32_t mask, uint32_t site, uint32_t bytes,
                             uint64_t entry) {
  const kw_cover *c = range->cover;
  const now at = now_of(w);
  uint32_t left = 0;
  if (bytes >> c->shift > 1 || !c->reader || (site_of(w, site)->parts & KW_RETURNS && !w->block->run->watch->parallel)) return mask;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(rest);
    uint64_t a = w->a[lane], g = (a - c->base) >> c->shift, mine = entry | lane;
    if (a - range->lo > range->last) {
      left |= 1u << lane;
      continue;
    }
    uint64_t e = c->writer[g], r = c->reader[g], q = c->second[g];
    if (((e >= at.floor) & !(e & KW_UPDATES)) | ((r >= at.floor) & !(r & KW_UPDATES)) | ((q >= at.floor) & !(q & KW_UPDATES))) {
      left |= 1u << lane;
      continue;
    }
    /* One of the block since its last barrier speaks for the others. */
    if (e >= at.full && !((e ^ mine) & KW_BLOCK_OF)) continue;
    c->writer[g] = mine;
    remember_reader(c, g, mine, at.floor);
  }
  return left;
}

uint64_t kw_cover_lanes(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint8_t *data, uint32_t step) {
  kw_watch *v = w->block->run->watch;
  if (!v || !mask) return 0;
  uint32_t event = kw_global_event(w, site);
  /* Who reads a flag may well go round until another warp sets it: it gets fewer rounds before that one has its turn. */
  if (site_of(w, site)->strong && site_of(w, site)->access != KW_STORE) w->budget -= KW_BUDGET / 64;
  if (!event) return 0;
  uint64_t entry = kw_global_entry(w, event), held = v->parallel ? lock_stripes(v, stripes_of(w, mask, bytes)) : 0;
  const kw_range *range = &w->ranges[site];
  if (site_of(w, site)->access == KW_ATOMIC) {
    entry |= KW_UPDATES;
    mask = range->cover ? update_lanes(w, range, mask, site, bytes, entry) : mask;
  }
  uint64_t before = ~0ull;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(rest);
    uint64_t a = w->a[lane];
    if (a == before && site_of(w, site)->access == KW_LOAD) continue; /* the lane before read the same */
    if (a - (uint64_t)w->shared < w->total_shared || a - (uint64_t)w->local < KW_LANES * w->local_stride) continue;
    before = a;
    const kw_cover *c = a - range->lo <= range->last ? range->cover : kw_cover_at(w->block->run, a);
    if (c) judge_lane(w, c, mask, lane, site, bytes, entry, data, step, 1);
  }
  return held;
}

/* ---- dense accesses: 32 lanes, one behind the other */

/* Does any of `size` entries at `e` stand against the lanes, n granules each? */
INLINE int any_stands(const uint64_t *e, uint64_t entry, const now *at, const uint32_t size, const uint32_t n) {
  uint64_t last = 0, bad = 0;
  for (uint32_t i = 0; i < size; i++) last = e[i] > last ? e[i] : last;
  if (last < at->floor) return 0;
  for (uint32_t i = 0; i < size; i++) {
    uint64_t mine = entry + i / n;
    bad |= (uint64_t)KW_STANDS(e[i], mine, at->floor, at->full, at->clock);
  }
  return bad != 0;
}

/* Does one of them stand even when all orders are considered? Neighbours mostly come of one event, which is looked up once. */
static int any_against(const kw_warp *w, const uint64_t *e, uint64_t entry, const now *at, uint32_t size, uint32_t n,
                       const kw_site *about) {
  uint64_t ordered = 0;
  for (uint32_t i = 0; i < size; i++) {
    uint64_t mine = entry + i / n;
    if (!KW_STANDS(e[i], mine, at->floor, at->full, at->clock) || e[i] >> 5 == ordered) continue;
    if (against(w, e[i], mine, about, at)) return 1;
    ordered = e[i] >> 5;
  }
  return 0;
}

INLINE void dense_load(kw_warp *w, const kw_cover *c, uint32_t site, uint32_t bytes, uint32_t step, uint64_t entry,
                       const uint32_t n) {
  const now at = now_of(w);
  const uint64_t g = (w->a[0] - c->base) >> c->shift;
  const uint32_t size = KW_LANES * n;
  if (any_stands(c->writer + g, entry, &at, size, n) &&
      any_against(w, c->writer + g, entry, &at, size, n, site_of(w, site)))
    for (uint32_t l = 0; l < KW_LANES; l++) judge_lane(w, c, ~0u, l, site, bytes, entry, NULL, step, 0);
  if (!c->reader) return;
  uint64_t *restrict r = c->reader + g, others = 0;
  for (uint32_t i = 0; i < size; i++) others |= (uint64_t)((r[i] >= at.floor) & (((r[i] ^ entry) & (KW_BLOCK_OF | KW_WARP_OF)) != 0));
  if (others)
    for (uint32_t i = 0; i < size; i++) remember_reader(c, g + i, entry + i / n, at.floor);
  else
    for (uint32_t i = 0; i < size; i++) r[i] = entry + i / n;
}

INLINE void dense_store(kw_warp *w, const kw_cover *c, uint32_t site, uint32_t bytes, uint32_t step, uint64_t entry,
                        const uint32_t n) {
  const now at = now_of(w);
  const uint64_t g = (w->a[0] - c->base) >> c->shift;
  const uint32_t size = KW_LANES * n;
  int bad = any_stands(c->writer + g, entry, &at, size, n);
  if (c->reader) bad |= any_stands(c->reader + g, entry, &at, size, n) | any_stands(c->second + g, entry, &at, size, n);
  if (__builtin_expect(bad, 0)) {
    const kw_site *about = site_of(w, site);
    bad = any_against(w, c->writer + g, entry, &at, size, n, about);
    if (c->reader && !bad)
      bad = any_against(w, c->reader + g, entry, &at, size, n, about) ||
            any_against(w, c->second + g, entry, &at, size, n, about);
  }
  if (__builtin_expect(bad, 0))
    for (uint32_t l = 0; l < KW_LANES; l++)
      judge_lane(w, c, ~0u, l, site, bytes, entry, (const uint8_t *)w->d, step, 0);
  uint64_t *restrict writer = c->writer + g;
  for (uint32_t i = 0; i < size; i++) writer[i] = entry + i / n;
}

#define BY_GRANULES(call, n, ...)                                                                                      \
  do {                                                                                                                 \
    switch (n) {                                                                                                       \
      case 1: call(__VA_ARGS__, 1); break;                                                                             \
      case 2: call(__VA_ARGS__, 2); break;                                                                             \
      case 4: call(__VA_ARGS__, 4); break;                                                                             \
      case 8: call(__VA_ARGS__, 8); break;                                                                             \
      default: call(__VA_ARGS__, n); break;                                                                            \
    }                                                                                                                  \
  } while (0)

void kw_cover_load(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, uint32_t step, int shape) {
  kw_watch *v = w->block->run->watch;
  const kw_site *about = site_of(w, site);
  /* Where all lanes read one place, it is as if the last one alone did. */
  if (mask == ~0u && shape == KW_BROADCAST) mask = 1u << (KW_LANES - 1);
  if (mask != ~0u || shape != KW_DENSE || about->strong || about->read_only) {
    kw_written(w, kw_cover_lanes(w, mask, site, bytes, NULL, step));
    return;
  }
  const kw_cover *c = w->ranges[site].cover;
  uint32_t event = kw_global_event(w, site), n = bytes >> c->shift ? bytes >> c->shift : 1;
  if (!event) return;
  uint64_t held = v->parallel ? lock_stripes(v, stripes_of(w, 0x80000001u, bytes)) : 0, entry = kw_global_entry(w, event);
  BY_GRANULES(dense_load, n, w, c, site, bytes, step, entry);
  kw_written(w, held);
}

uint64_t kw_cover_store(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, uint32_t step, int shape) {
  kw_watch *v = w->block->run->watch;
  if (mask != ~0u || shape != KW_DENSE || site_of(w, site)->strong)
    return kw_cover_lanes(w, mask, site, bytes, (const uint8_t *)w->d, step);
  const kw_cover *c = w->ranges[site].cover;
  uint32_t event = kw_global_event(w, site), n = bytes >> c->shift ? bytes >> c->shift : 1;
  if (!event) return 0;
  uint64_t held = v->parallel ? lock_stripes(v, stripes_of(w, 0x80000001u, bytes)) : 0, entry = kw_global_entry(w, event);
  BY_GRANULES(dense_store, n, w, c, site, bytes, step, entry);
  return held;
}
