/* The shadow of global memory during one launch: for each granule who wrote it last and which two read it last.
 *
 * Why: two blocks that touch one word, one of them writing, race however this emulator happened to run them. The rule:
 * happens-before, as in runtime_shadow.h, with blocks besides warps and lanes. Only an allocation that the launch may
 * write has a shadow (a "cover"), and its readers are kept only where the launch may read it too, so that inputs that are
 * only read cost one comparison of a pointer with null.
 *
 * An entry is event << 32 | atomic << 31 | block << 10 | warp << 5 | lane, of the block the low 21 bits. Events are numbered through all
 * launches, so that entries of earlier launches are known by their size and no shadow is ever cleared.
 */
#ifndef KW_RUNTIME_GLOBAL_H
#define KW_RUNTIME_GLOBAL_H
#include "runtime_shadow.h"
#include <pthread.h>

#define KW_LANE_OF 0x1full
#define KW_WARP_OF 0x3e0ull
#define KW_BLOCK_OF 0x7ffffc00ull
#define KW_THREAD_OF 0x7fffffffull
#define KW_UPDATES 0x80000000ull
#define KW_STRIPES 64

/* What an event was: of which block and site, and the block's own time (kw_shadow.next) of it. */
typedef struct kw_record { uint32_t block, site, time; } kw_record;

/* The shadow of one allocation; writer NULL: it needs none. reader and second NULL: nobody reads it in this launch. */
struct kw_cover { uint64_t base, bytes; uint64_t *writer, *reader, *second; uint32_t shift; };

/* What a block has made visible to others so far: stamps (events of the launch) and, behind each, a time for each warp. */
typedef struct kw_past { uint32_t n, capacity, lost; uint32_t *list; } kw_past;

typedef struct kw_region { void *memory; uint64_t bytes; int taken; } kw_region;

struct kw_watch {
  atomic_uint issued;             /* events given out so far */
  uint32_t first, end;            /* of this launch: its first event, and the one behind the last that there is room for */
  kw_record *records;             /* of event first + i */
  kw_numbers numbers;             /* where all blocks run on one thread */
  int parallel, unknown_store, unknown_load;
  uint32_t unknown_granule, warps;
  struct kw_target { uint64_t base; uint32_t granule; uint8_t written, read; } *targets;
  uint32_t n_targets;
  kw_cover **covers;              /* sorted by base */
  uint32_t n_covers, c_covers;
  pthread_mutex_t lock;
  atomic_uchar stripes[KW_STRIPES];
  kw_past *pasts;                 /* [blocks]; NULL where blocks run in parallel, so that nothing orders them */
  uint64_t blocks, stood, stood_bytes;
};

kw_watch *kw_watch_start(kw_run *);
void kw_watch_end(kw_watch *);
/* The event of this site since the warp's last synchronisation; 0 once there is no room for more. */
uint32_t kw_new_global_event(kw_warp *w, uint32_t site);
int kw_more_numbers(kw_watch *, kw_numbers *);
/* The cover of an allocation that holds the address, or NULL. */
kw_cover *kw_cover_at(kw_run *, uint64_t address);

/* A checked access of a covered allocation; w->a holds the addresses. What is returned is to be given to kw_unlock once
 * the values are in memory. */
void kw_cover_load(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, uint32_t step, int shape);
uint64_t kw_cover_store(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, uint32_t step, int shape);
/* The same lane by lane, whatever allocations they lie in; data: what a store is about to write. */
uint64_t kw_cover_lanes(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint8_t *data, uint32_t step);
void kw_unlock_stripes(kw_watch *, uint64_t held);

/* Orders between blocks, where they run on one thread. */
void kw_publish(kw_warp *w);
void kw_lose_past(kw_block *b);
int kw_is_published(const kw_warp *w, const kw_record *record, uint32_t warp);

/* The event of a global site since the warp's last synchronisation; 0: no more are counted. */
INLINE uint32_t kw_global_event(kw_warp *w, uint32_t site) {
  const kw_shadow *s = w->shadow;
  uint32_t event = s->global_seen[w->index * s->n_sites + site];
  return __builtin_expect(event >= w->global_clock, 1) ? event : kw_new_global_event(w, site);
}

INLINE uint64_t kw_global_entry(const kw_warp *w, uint32_t event) {
  return (uint64_t)event << 32 | ((w->block->index << 10) & KW_BLOCK_OF) | w->index << 5;
}

/* Whether entry e stands against an access of `mine`, as far as numbers tell: of this launch, of another thread, and not
 * before the last barrier of the same block or the last meeting of the same warp. */
#define KW_STANDS(e, mine, floor, full, clock)                                                                         \
  (((e) >= (floor)) & ((((e) ^ (mine)) & KW_THREAD_OF) != 0) & !((!(((e) ^ (mine)) & KW_BLOCK_OF)) & ((e) < (full))) &        \
   !((!(((e) ^ (mine)) & (KW_BLOCK_OF | KW_WARP_OF))) & ((e) < (clock))))

INLINE void kw_cover_read(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, uint32_t step, int shape) {
  if (__builtin_expect(w->ranges[site].cover != NULL, 0)) kw_cover_load(w, mask, site, bytes, step, shape);
}

INLINE uint64_t kw_cover_write(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, uint32_t step, int shape) {
  return w->ranges[site].cover ? kw_cover_store(w, mask, site, bytes, step, shape) : 0;
}

INLINE void kw_written(kw_warp *w, uint64_t held) {
  if (__builtin_expect(held != 0, 0)) kw_unlock_stripes(w->block->run->watch, held);
}
#endif
