/* Block barriers: arrival, completion, release, and what it means when nobody can go on.
 *
 * The rule is the hardware's: a barrier without a count is complete when every thread of the block waits at it or has
 * exited; one with a count counts whole warps. Source: PTX ISA 9.0, 9.7.13.1 bar/barrier.
 */
#include "runtime_shadow.h"
#include "runtime_block.h"

#define EACH(l, mask) for (uint32_t rest_ = (mask), l; rest_ && (l = (uint32_t)__builtin_ctz(rest_), 1); rest_ &= rest_ - 1)

/* The running lanes wait at barrier `id` and go on at `pc`. `votes`: lanes whose predicate is true (bar.red). */
KW_API void kw_bar(kw_warp *w, uint32_t id, uint32_t count, int32_t pc, uint32_t site, int aligned, uint32_t votes) {
  kw_barrier *bar = &w->block->barriers[id & 15];
  uint32_t lanes = w->mask;
  EACH(l, lanes) {
    w->pcs[l] = pc;
    w->barrier_id[l] = (uint8_t)((id & 15) | (aligned ? 0x80 : 0));
    w->barrier_site[l] = (int32_t)site;
  }
  w->waiting |= lanes;
  w->barrier_lanes |= lanes;
  if (!bar->used) {
    bar->all = 1;
    bar->any = bar->popc = bar->announced = bar->arrived = 0;
  }
  bar->used = 1;
  bar->count = count;
  bar->arrived += (uint32_t)__builtin_popcount(lanes);
  bar->all &= (votes & lanes) == lanes;
  bar->any |= (votes & lanes) != 0;
  bar->popc += (uint32_t)__builtin_popcount(votes & lanes);
}

/* bar.arrive: counted, not waiting. */
KW_API void kw_bar_arrive(kw_warp *w, uint32_t id, uint32_t count) {
  kw_barrier *bar = &w->block->barriers[id & 15];
  if (!bar->used) {
    bar->all = 1;
    bar->any = bar->popc = bar->announced = bar->arrived = 0;
  }
  bar->used = 1;
  bar->count = count;
  kw_release(w, id);
  bar->announced += w->mask == w->live ? KW_LANES : (uint32_t)__builtin_popcount(w->mask);
}

static uint32_t lanes_at_barrier(const kw_warp *w, uint32_t id) {
  uint32_t lanes = 0;
  EACH(l, w->barrier_lanes) if ((w->barrier_id[l] & 15u) == id) lanes |= 1u << l;
  return lanes;
}

static int is_complete(kw_block *b, uint32_t id) {
  kw_barrier *bar = &b->barriers[id];
  if (!bar->count) return bar->arrived && bar->arrived + b->exited >= b->threads;
  uint32_t total = bar->announced;
  for (uint32_t i = 0; i < b->warps; i++) {
    const kw_warp *w = kw_warp_of(b, i);
    uint32_t lanes = lanes_at_barrier(w, id);
    total += lanes && lanes == w->live ? KW_LANES : (uint32_t)__builtin_popcount(lanes);
  }
  return total >= bar->count;
}

/* Lets everyone go who waits at a complete barrier; the number of barriers completed. */
int kw_complete_barriers(kw_block *b) {
  int completed = 0;
  for (uint32_t id = 0; id < KW_BARRIERS; id++) {
    kw_barrier *bar = &b->barriers[id];
    if (!bar->used || !is_complete(b, id)) continue;
    completed++;
    uint32_t waiting[KW_LANES] = {0};
    for (uint32_t i = 0; i < b->warps; i++) waiting[i] = lanes_at_barrier(kw_warp_of(b, i), id);
    kw_join(b, id, waiting);
    uint32_t result = bar->popc << 2 | bar->any << 1 | bar->all;
    for (uint32_t i = 0; i < b->warps; i++) {
      kw_warp *w = kw_warp_of(b, i);
      uint32_t lanes = waiting[i];
      if (!lanes) continue;
      int first = __builtin_ctz(lanes);
      if (b->exited && !bar->count) {
        kw_finding *f = kw_report(w, KW_EXITED_BEFORE_BARRIER, w->barrier_site[first], first, 0, 0);
        if (f) f->access = KW_AT_BARRIER;
      }
      w->waiting &= ~lanes;
      w->barrier_lanes &= ~lanes;
      w->red = result;
    }
    bar->used = 0;
  }
  return completed;
}

/* Every warp waits and no barrier is complete. Warp-level waits are let go first; else the block is dead. */
void kw_resolve_stuck(kw_block *b) {
  int freed = 0;
  for (uint32_t i = 0; i < b->warps; i++) freed |= kw_force_sync(kw_warp_of(b, i));
  if (freed) return;
  int32_t first_site = -1;
  int several = 0;
  for (uint32_t i = 0; i < b->warps; i++) {
    kw_warp *w = kw_warp_of(b, i);
    EACH(l, w->barrier_lanes) {
      several |= first_site >= 0 && w->barrier_site[l] != first_site;
      if (first_site < 0) first_site = w->barrier_site[l];
    }
  }
  for (uint32_t i = 0; i < b->warps; i++) {
    kw_warp *w = kw_warp_of(b, i);
    EACH(l, w->barrier_lanes) {
      kw_finding *f = kw_report(w, several ? KW_DIVERGENT_BARRIER : KW_DEADLOCK, w->barrier_site[l], (int)l, 0,
                                KW_LAUNCH_FAILURE);
      if (f) f->access = KW_AT_BARRIER;
    }
  }
  b->stop = 1;
  if (!b->error) b->error = KW_LAUNCH_FAILURE;
}
