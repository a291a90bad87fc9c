/* A warp's control flow: which lanes run next, divergence, exit, yielding, and waiting for one another.
 *
 * The rule: of the runnable lanes those with the lowest program counter run, and counters are numbered in reverse
 * postorder, so that lanes meet again where the code joins. After KW_BUDGET backward branches another group gets its
 * turn, so that a lane that spins on what another lane must do does not spin for ever.
 */
#include "runtime_warp.h"

#define EACH(l, mask) for (uint32_t rest_ = (mask), l; rest_ && (l = (uint32_t)__builtin_ctz(rest_), 1); rest_ &= rest_ - 1)

static uint32_t lanes_at(const kw_warp *w, uint32_t among, int32_t pc) {
  uint32_t at = 0;
  for (uint32_t l = 0; l < KW_LANES; l++) at |= (uint32_t)(w->pcs[l] == pc) << l;
  return at & among;
}

static int32_t lowest(const kw_warp *w, uint32_t among) {
  int32_t low = KW_NONE_WAITS;
  for (int l = 0; l < KW_LANES; l++) {
    int32_t pc = among >> l & 1 ? w->pcs[l] : KW_NONE_WAITS;
    low = pc < low ? pc : low;
  }
  return low;
}

/* Lanes of a warp-level synchronisation all of whose living members have arrived. */
static uint32_t ready_lanes(const kw_warp *w) {
  uint32_t ready = 0;
  EACH(l, w->sync_lanes) {
    uint32_t here = w->sync_any >> l & 1 ? w->sync_lanes & w->sync_any : lanes_at(w, w->sync_lanes, w->pcs[l]);
    if (!(w->members[l] & w->live & ~here)) ready |= 1u << l;
  }
  return ready;
}

static void release(kw_warp *w, uint32_t lanes) {
  w->sync_lanes &= ~lanes;
  w->waiting &= ~lanes;
  w->sync_passed |= lanes;
}

static int32_t stop(kw_warp *w, int status) {
  w->status = status;
  return -1;
}

/* A warp of which some lanes wait at one aligned barrier and others at another can never go on as written. */
static int split_over_barriers(kw_warp *w) {
  if (w->barrier_lanes != w->live || !w->live) return 0;
  int first = __builtin_ctz(w->live);
  uint32_t others = 0;
  EACH(l, w->live) if (w->barrier_site[l] != w->barrier_site[first] && (w->barrier_id[l] & 0x80)) others |= 1u << l;
  if (!others) return 0;
  int second = __builtin_ctz(others);
  kw_finding *f = kw_report(w, KW_DIVERGENT_BARRIER, w->barrier_site[first], first, 0, KW_LAUNCH_FAILURE);
  if (f) f->access = KW_AT_BARRIER;
  f = kw_report(w, KW_DIVERGENT_BARRIER, w->barrier_site[second], second, 0, KW_LAUNCH_FAILURE);
  if (f) f->access = KW_AT_BARRIER;
  w->block->stop = 1;
  return 1;
}

/* The next group of lanes: sets mask and returns its pc, or -1 when the warp must return to the scheduler. */
KW_API int32_t kw_dispatch(kw_warp *w) {
  if (w->block->stop || w->block->run->stop) return stop(w, KW_STOPPED);
  uint32_t runnable = w->live & ~w->waiting;
  if (!runnable) {
    if (!w->live) return stop(w, KW_EXITED);
    uint32_t ready = ready_lanes(w);
    if (!ready) {
      if (split_over_barriers(w)) return stop(w, KW_STOPPED);
      return stop(w, KW_WAITS);
    }
    release(w, ready);
    runnable = ready;
  }
  int32_t pc;
  if (w->rotate) {
    /* The group of the first runnable lane behind the one that ran last; it runs on alone. */
    uint32_t behind = w->rotate == 32 ? 0 : runnable & ~((1u << w->rotate) - 1);
    pc = w->pcs[__builtin_ctz(behind ? behind : runnable)];
    w->rotate = 0;
    w->mask = lanes_at(w, runnable, pc);
    w->next_waits = KW_NONE_WAITS;
    return pc;
  }
  pc = lowest(w, runnable);
  w->mask = lanes_at(w, runnable, pc);
  w->next_waits = lowest(w, runnable & ~w->mask);
  return pc;
}

/* The running lanes go to pc, where other lanes may be met. */
KW_API void kw_defer(kw_warp *w, int32_t pc) { EACH(l, w->mask) w->pcs[l] = pc; }

/* Of the running lanes `taken` go to `target`, the rest to `other`. Returns the pc to run next, or -1. */
KW_API int32_t kw_diverge(kw_warp *w, uint32_t taken, int32_t target, int32_t other) {
  uint32_t rest = w->mask & ~taken;
  EACH(l, taken) w->pcs[l] = target;
  EACH(k, rest) w->pcs[k] = other;
  int32_t low = target < other ? target : other, high = target < other ? other : target;
  if (low >= w->next_waits) return kw_dispatch(w);
  w->mask = target < other ? taken : rest;
  if (high < w->next_waits) w->next_waits = high;
  return low;
}

KW_API int32_t kw_exit(kw_warp *w, uint32_t lanes) {
  w->live &= ~lanes;
  w->mask &= ~lanes;
  w->block->exited += (uint32_t)__builtin_popcount(lanes);
  return kw_dispatch(w);
}

/* The budget of backward branches is spent: lanes of the mask will go on at pc; the warp returns to the scheduler. */
KW_API void kw_yield(kw_warp *w, int32_t pc) {
  kw_run *run = w->block->run;
  kw_defer(w, pc);
  w->where = pc;
  w->budget = KW_BUDGET >> w->block->haste;
  kw_note_place(w);
  if (w->live & ~w->waiting & ~w->mask) w->rotate = 32u - (uint32_t)__builtin_clz(w->mask);
  if (kw_interrupted || (run->deadline_s > 0 && kw_now() - run->started > run->deadline_s)) {
    run->interrupted = 1;
    run->stop = 1;
  }
  /* What a bad load brought may keep a loop going for ever: a block that has faulted gets a million more turns of one. */
  if (w->block->error && ++w->block->turns_after_error > 256) w->block->stop = 1;
  w->status = KW_YIELDED;
}

/* At a warp-level synchronisation whose members (w->d[1]) may not all be here: the lanes that may go on, set as mask. */
KW_API uint32_t kw_sync(kw_warp *w, int32_t pc, uint32_t site, int any) {
  uint32_t passed = w->mask & w->sync_passed, arriving = w->mask & ~passed;
  const uint32_t *members = (const uint32_t *)w->d[1];
  EACH(l, arriving) {
    w->members[l] = members[l];
    w->barrier_site[l] = (int32_t)site;
    w->pcs[l] = pc;
  }
  w->sync_lanes |= arriving;
  w->waiting |= arriving;
  w->sync_any = any ? w->sync_any | arriving : w->sync_any & ~arriving;
  w->sync_passed &= ~passed;
  uint32_t ready = ready_lanes(w);
  release(w, ready);
  uint32_t here = passed | lanes_at(w, ready, pc);
  w->sync_passed &= ~here;
  if (!here) return 0;
  w->mask = here;
  w->next_waits = lowest(w, w->live & ~w->waiting & ~here);
  return here;
}

/* Nobody in the block can go on and this warp waits for lanes that will not come: let them go, and say so. */
int kw_force_sync(kw_warp *w) {
  uint32_t lanes = w->sync_lanes;
  if (!lanes) return 0;
  int first = __builtin_ctz(lanes);
  kw_finding *f = kw_report(w, KW_WARP_MASK, w->barrier_site[first], first, 0, 0);
  if (f) f->access = KW_AT_SYNC;
  release(w, lanes);
  return 1;
}

/* brx.idx: indices in w->d[0], block numbers from w->d[1] on. An index past the list is undefined: the last is taken. */
KW_API int32_t kw_branch_by_index(kw_warp *w, uint32_t count) {
  const uint32_t *index = (const uint32_t *)w->d[0];
  const int32_t *targets = (const int32_t *)w->d[1];
  EACH(l, w->mask) w->pcs[l] = targets[index[l] < count ? index[l] : count - 1];
  return kw_dispatch(w);
}
