/* The shadow of a block's shared memory: for each granule who wrote it last and which two warps read it last.
 *
 * Why: two accesses race when nothing orders them, whatever order this emulator ran them in. The rule: happens-before.
 * Every site that a warp runs between two of its synchronisations is one event; events of a block are numbered in time, so
 * that "before the last barrier of the whole block" is one comparison, and 32 dense lanes are checked as one vector.
 * Source of the scheme: Flanagan and Freund, FastTrack (PLDI 2009), with warps for threads and two readers for all: any
 * writer differs from one of two readers.
 */
#ifndef KW_RUNTIME_SHADOW_H
#define KW_RUNTIME_SHADOW_H
#include "runtime_access.h"

/* An entry is event << 10 | warp << 5 | lane. */
#define KW_ENTRY(event, warp) ((event) << 10 | (warp) << 5)
#define KW_WARP_BITS 0x3e0u
#define KW_EVENTS (1u << 22)
/* In kw_shadow.events, beside the site: a copy that a barrier has overtaken. */
#define KW_CARRIED 0x80000000u
/* Events between two barriers of the whole block; beyond them the older ones are forgotten, which can only hide a race. */
#define KW_RECENT_EVENTS (1u << 16)

typedef struct kw_pending { uint32_t address, bytes, lane, site, group; } kw_pending;

/* Copies of one warp that are still under way (cp.async). */
typedef struct kw_copies { kw_pending *list; uint32_t n, capacity, group; } kw_copies;

/* 32 granules in a row: what a warp reads as a whole is kept here alone, and what an access need not look at its granules
 * for. written, read: the greatest event of a store to one of them, and of a load that is kept with the granules; complete:
 * the first event of the block in which all of them were found written. */
#define KW_LINE 32u
typedef struct kw_line { uint32_t reader, second, written, read, complete; } kw_line;

/* Numbers for events of global memory that are still to be given: next, and the one behind the last. */
typedef struct kw_numbers { uint32_t next, end; } kw_numbers;

struct kw_shadow {
  uint32_t *writer, *reader, *second;   /* entries, one a granule; second: the last reader of another warp than reader */
  kw_line *lines;
  uint32_t *events;                     /* [KW_RECENT_EVENTS]: the site of event `full + i` */
  uint32_t *seen, *first;               /* [warps][sites]: the last event of a site; its first since the warp's barrier */
  uint32_t granules, n_lines, shift, n_sites, warps; /* shift: log2 of a granule's bytes */
  int unwatched;                        /* nothing is entered, nothing judged */
  uint32_t next, full, start;           /* the next event; the first since the last whole barrier; the first of the block */
  uint32_t interval[KW_LANES];          /* each warp: the first event since its last barrier */
  uint32_t known[KW_LANES][KW_LANES];   /* [w][v]: events of warp v below this come before what warp w does now */
  uint32_t released[KW_BARRIERS][KW_LANES], fence[KW_LANES];
  uint8_t has_released[KW_BARRIERS];
  uint8_t fenced;
  kw_copies copies[KW_LANES];
  /* Global memory (runtime_global.h): of its events, the first since the last whole barrier, each site's last one in each
   * warp, and what each warp has acquired; of a barrier and of the block's fences, what came along. */
  kw_numbers *numbers, own_numbers;
  uint32_t global_full, *global_seen;
  uint32_t acquired[KW_LANES], released_acquired[KW_BARRIERS], fence_acquired;
  uint8_t *memory;
  uint64_t bytes;
};

uint32_t kw_new_event(kw_warp *w, uint32_t site);
/* What the warp did so far goes into `clock`; what went into `clock` comes before what the warp does from now on. */
void kw_order_release(kw_warp *w, uint32_t *clock);
void kw_order_acquire(kw_warp *w, const uint32_t *clock);
/* Copies of these lanes are waited for through an mbarrier from now on. */
void kw_copies_handed_over(kw_warp *w, uint32_t lanes);
/* What is wrong with the lanes of an access, before it is entered into the shadow; data: what a store is about to write. */
void kw_judge(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint32_t *a, const uint8_t *data,
              uint32_t step);
/* Judge and enter an access lane by lane, at window addresses a. */
void kw_touch(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint32_t *a, const uint8_t *data,
              uint32_t step);
/* Judge one lane's access against one earlier access, which the shadow may have forgotten since. */
void kw_judge_against(kw_warp *w, uint32_t lane, uint32_t site, uint32_t address, uint32_t entry);
/* The lanes of a generic access that lie in the shared window. */
void kw_touch_generic(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint8_t *data, uint32_t step);
void kw_uninitialised(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, uint32_t step, int space);

/* The event of this site since the warp's last synchronisation. */
INLINE uint32_t kw_event(kw_warp *w, uint32_t site) {
  const kw_shadow *s = w->shadow;
  uint32_t event = s->seen[w->index * s->n_sites + site];
  return __builtin_expect(event >= w->clock, 1) ? event : kw_new_event(w, site);
}

/* Whether the entry of a write or a read stands against an access of lane `mine`; full and clock are entries of lane 0. */
#define KW_AGAINST(e, mine, full, clock)                                                                               \
  (((e) >= (full)) & (((((e) ^ (mine)) & KW_WARP_BITS) != 0) | (((e) >= (clock)) & ((((e) ^ (mine)) & 31) != 0))))

/* Is it not certain that nothing stands against a load: written in this block, and before its last whole barrier? */
#define KW_DOUBT(s, e) ((e) - ((s)->start << 10) >= ((s)->full - (s)->start) << 10)

/* The greatest event of anything that happened to a line. */
INLINE uint32_t kw_line_last(const kw_line *l) {
  uint32_t a = l->written > l->read ? l->written : l->read, b = l->reader > l->second ? l->reader : l->second;
  return a > b >> 10 ? a : b >> 10;
}

/* Notes it where all granules of a line have been written in this block. */
INLINE void kw_try_complete(kw_shadow *s, uint32_t line) {
  const uint32_t *writer = s->writer + line * KW_LINE;
  uint32_t unwritten = 0;
  for (uint32_t i = 0; i < KW_LINE; i++) unwritten |= (uint32_t)(writer[i] < s->start << 10);
  if (!unwritten) s->lines[line].complete = s->start;
}

/* The two lanes' worth of what a line remembers of whole reads, as an entry for its granule i; n: granules a lane. */
INLINE uint32_t kw_line_entry(uint32_t entry, uint32_t i, uint32_t n) { return entry + (i & (KW_LINE - 1)) / n; }

INLINE int kw_is_settled(const kw_shadow *s, const kw_line *l) { return l->written < s->full && l->complete == s->start; }

INLINE void kw_line_read(kw_line *l, uint32_t entry) {
  if ((l->reader ^ entry) & KW_WARP_BITS) l->second = l->reader;
  l->reader = entry;
}

/* 32 lanes, n granules each, from the start of a line on: n lines that are read as wholes. */
INLINE void kw_lines_load(kw_warp *w, uint32_t site, const uint32_t bytes, const uint32_t step, uint32_t at, const uint32_t n) {
  kw_shadow *s = w->shadow;
  const uint32_t entry = KW_ENTRY(kw_event(w, site), w->index);
  kw_line *l = s->lines + at / KW_LINE;
  int settled = 1;
  for (uint32_t p = 0; p < n; p++) settled &= kw_is_settled(s, l + p);
  if (__builtin_expect(!settled, 0)) {
    const uint32_t *writer = s->writer + at, full = s->full << 10, start = s->start << 10, clock = w->clock << 10;
    const uint32_t copied = s->copies[w->index].n ? full : ~0u;
    uint32_t bad = 0, unwritten = 0;
    for (uint32_t i = 0; i < KW_LANES * n; i++) {
      uint32_t e = writer[i], mine = entry + i / n;
      unwritten |= (uint32_t)(e < start);
      bad |= (uint32_t)KW_AGAINST(e, mine, full, clock) | (uint32_t)(e >= copied);
    }
    if (!unwritten)
      for (uint32_t p = 0; p < n; p++) l[p].complete = s->start;
    if (bad | unwritten) kw_judge(w, ~0u, site, bytes, (const uint32_t *)w->a, NULL, step);
  }
  for (uint32_t p = 0; p < n; p++) kw_line_read(l + p, entry + p * KW_LANES / n);
}

/* `lanes` lanes up to the last, each at n granules behind those of the lane before: 32 of them, or one for a broadcast. */
INLINE void kw_dense_load(kw_warp *w, uint32_t site, const uint32_t bytes, const uint32_t step, const int lanes,
                          const int n) {
  kw_shadow *s = w->shadow;
  const uint32_t at = ((const uint32_t *)w->a)[0] >> s->shift;
  if (lanes == KW_LANES && at % KW_LINE == 0) {
    kw_lines_load(w, site, bytes, step, at, (uint32_t)n);
    return;
  }
  const uint32_t event = kw_event(w, site), size = (uint32_t)(lanes * n);
  const uint32_t *writer = s->writer + at;
  uint32_t *restrict reader = s->reader + at, *restrict second = s->second + at;
  const uint32_t entry = KW_ENTRY(event, w->index) + KW_LANES - (uint32_t)lanes;
  uint32_t settled = 1;
  for (uint32_t p = at / KW_LINE; p <= (at + size - 1) / KW_LINE; p++) {
    settled &= (uint32_t)kw_is_settled(s, s->lines + p);
    s->lines[p].read = event;
  }
  for (uint32_t i = 0; i < size; i++) {
    uint32_t r = reader[i];
    second[i] = (r ^ entry) & KW_WARP_BITS ? r : second[i];
    reader[i] = entry + i / (uint32_t)n;
  }
  if (settled) return;
  const uint32_t full = s->full << 10, start = s->start << 10, clock = w->clock << 10;
  const uint32_t copied = s->copies[w->index].n ? full : ~0u;
  uint32_t bad = 0;
  for (uint32_t i = 0; i < size; i++) {
    uint32_t e = writer[i], mine = entry + i / (uint32_t)n;
    bad |= (uint32_t)(e < start) | (uint32_t)KW_AGAINST(e, mine, full, clock) | (uint32_t)(e >= copied);
  }
  if (bad) kw_judge(w, ~0u << (KW_LANES - lanes), site, bytes, (const uint32_t *)w->a, NULL, step);
  else kw_try_complete(s, at / KW_LINE);
}

INLINE void kw_dense_store(kw_warp *w, uint32_t site, const uint32_t bytes, const uint32_t step, const int n) {
  kw_shadow *s = w->shadow;
  const uint32_t event = kw_event(w, site), at = ((const uint32_t *)w->a)[0] >> s->shift;
  const uint32_t size = KW_LANES * (uint32_t)n, lines = (at % KW_LINE + size + KW_LINE - 1) / KW_LINE;
  uint32_t *writer = s->writer + at;
  const uint32_t *reader = s->reader + at, *second = s->second + at;
  const uint32_t entry = KW_ENTRY(event, w->index), full = s->full << 10, clock = w->clock << 10;
  kw_line *l = s->lines + at / KW_LINE;
  uint32_t last = 0, bad = 0;
  for (uint32_t p = 0; p < lines; p++) {
    uint32_t e = kw_line_last(l + p);
    last = e > last ? e : last;
    l[p].written = event;
    if (at % KW_LINE == 0) l[p].complete = s->start;
  }
  if (__builtin_expect(last >= s->full, 0)) {
    for (uint32_t i = 0; i < size; i++) {
      uint32_t e = writer[i], r = reader[i], q = second[i], mine = entry + i / (uint32_t)n;
      bad |= (uint32_t)KW_AGAINST(e, mine, full, clock) | (uint32_t)KW_AGAINST(r, mine, full, clock) |
             (uint32_t)KW_AGAINST(q, mine, full, clock);
    }
    bad |= s->copies[w->index].n;
    for (uint32_t p = 0; p < lines; p++) bad |= (uint32_t)((l[p].reader >= full) | (l[p].second >= full));
    if (bad) kw_judge(w, ~0u, site, bytes, (const uint32_t *)w->a, (const uint8_t *)w->d, step);
  }
  for (uint32_t i = 0; i < size; i++) writer[i] = entry + i / (uint32_t)n;
}

/* Lanes of a full warp that suffice, where the first half of them, or all, have the addresses of the others. */
INLINE uint32_t kw_enough_lanes(const uint32_t *a) {
  uint32_t halves = 0, quarters = 0;
  for (int l = 0; l < 16; l++) halves |= a[l] ^ a[l + 16];
  if (halves) return ~0u;
  for (int l = 0; l < 8; l++) quarters |= a[l] ^ a[l + 8];
  return quarters ? 0xffff0000u : 0xff000000u;
}

/* Scattered lanes, n granules each. */
INLINE void kw_scattered_load(kw_warp *w, uint32_t mask, uint32_t site, const uint32_t bytes, const uint32_t step,
                              const int n) {
  kw_shadow *s = w->shadow;
  const uint32_t *a = (const uint32_t *)w->a, entry = KW_ENTRY(kw_event(w, site), w->index), shift = s->shift;
  const uint32_t start = s->start << 10, recent = (s->full - s->start) << 10;
  const uint32_t *writers = s->writer;
  uint32_t *readers = s->reader, *seconds = s->second, before = ~0u, doubtful = 0;
  if (mask == ~0u) mask = kw_enough_lanes(a);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(rest), at = a[lane], doubt = 0;
    if (at == before) continue; /* the lane before read the same */
    before = at;
    at >>= shift;
    uint32_t *restrict reader = readers + at, *restrict second = seconds + at;
    const uint32_t *restrict writer = writers + at;
    for (int k = 0; k < n; k++) {
      uint32_t r = reader[k];
      doubt |= (uint32_t)(writer[k] - start >= recent);
      second[k] = (r ^ entry) & KW_WARP_BITS ? r : second[k];
      reader[k] = entry | lane;
    }
    s->lines[at / KW_LINE].read = entry >> 10;
    doubtful |= doubt << lane;
  }
  if (__builtin_expect(doubtful != 0, 0)) kw_judge(w, doubtful, site, bytes, a, NULL, step);
}

INLINE void kw_scattered_store(kw_warp *w, uint32_t mask, uint32_t site, const uint32_t bytes, const uint32_t step,
                               const int n) {
  kw_shadow *s = w->shadow;
  const uint32_t *a = (const uint32_t *)w->a, event = kw_event(w, site), entry = KW_ENTRY(event, w->index);
  const uint32_t full = s->full << 10, shift = s->shift;
  uint32_t last = 0, twice = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t at = a[__builtin_ctz(rest)] >> shift;
    for (int k = 0; k < n; k++) {
      uint32_t e = s->writer[at + (uint32_t)k], r = s->reader[at + (uint32_t)k], q = s->second[at + (uint32_t)k];
      e = e > r ? e : r;
      e = e > q ? e : q;
      last = e > last ? e : last;
    }
    const kw_line *l = s->lines + at / KW_LINE;
    last = l->reader > last ? l->reader : last;
    last = l->second > last ? l->second : last;
  }
  if (__builtin_expect(last >= full, 0)) {
    kw_touch(w, mask, site, bytes, a, (const uint8_t *)w->d, step);
    return;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(rest), at = a[lane] >> shift;
    for (int k = 0; k < n; k++) {
      twice |= (uint32_t)(s->writer[at + (uint32_t)k] >= full);
      s->writer[at + (uint32_t)k] = entry | lane;
    }
    s->lines[at / KW_LINE].written = event;
  }
  if (__builtin_expect(twice, 0)) kw_judge(w, mask, site, bytes, a, (const uint8_t *)w->d, step);
}

#define KW_BY_GRANULE(call, bytes, ...)                                                                                \
  do {                                                                                                                 \
    if (__builtin_expect(w->shadow->unwatched, 0)) break;                                                              \
    if (w->shadow->shift == 2) call(__VA_ARGS__, (bytes) >= 4 ? (int)(bytes) / 4 : 1);                                 \
    else if (w->shadow->shift == 1) call(__VA_ARGS__, (bytes) >= 2 ? (int)(bytes) / 2 : 1);                            \
    else call(__VA_ARGS__, (int)(bytes));                                                                              \
  } while (0)

INLINE void kw_shadow_load(kw_warp *w, uint32_t allowed, uint32_t site, const uint32_t bytes, const uint32_t step,
                           int shape) {
  if (allowed == ~0u && shape == KW_DENSE) KW_BY_GRANULE(kw_dense_load, bytes, w, site, bytes, step, KW_LANES);
  /* All lanes read one place: as if the last lane alone did. */
  else if (allowed == ~0u && shape == KW_BROADCAST) KW_BY_GRANULE(kw_dense_load, bytes, w, site, bytes, step, 1);
  else if (allowed) KW_BY_GRANULE(kw_scattered_load, bytes, w, allowed, site, bytes, step);
}

INLINE void kw_shadow_store(kw_warp *w, uint32_t allowed, uint32_t site, const uint32_t bytes, const uint32_t step,
                            int shape) {
  if (allowed == ~0u && shape == KW_DENSE) KW_BY_GRANULE(kw_dense_store, bytes, w, site, bytes, step);
  else if (allowed) KW_BY_GRANULE(kw_scattered_store, bytes, w, allowed, site, bytes, step);
}

/* Lanes of the warp have met: what they did before comes before what they do next. */
INLINE void kw_lanes_met(kw_warp *w) {
  w->clock = w->shadow->next;
  w->global_clock = w->shadow->numbers->next;
}

kw_shadow *kw_new_shadow(const kw_run *, uint32_t warps);
void kw_free_shadow(kw_shadow *);
void kw_start_shadow(kw_block *);
/* A barrier is complete; lanes[i]: the lanes of warp i that waited at it. */
void kw_join(kw_block *, uint32_t id, const uint32_t *lanes);
void kw_release(kw_warp *, uint32_t id);
void kw_copy_starts(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint32_t *a);
#endif
