/* mbarrier: barriers that lie in shared memory, count arrivals and bytes, and are waited for by asking.
 *
 * Source: PTX ISA 9.0, 9.7.13.15. The object is opaque to programs; here its word holds, from bit 0 on, the expected and
 * the pending arrivals (20 bits each), the pending bytes (21, signed), and in bit 63 the phase. The rule: what a warp did
 * before it arrived comes before what another does once its question is answered with yes; the arrivals of a phase that
 * is not complete order nothing. A copy counts as done when it is issued, so its arrival is one, too.
 */
#include "runtime_shadow.h"
#include "runtime_block.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Backward branches that a warp may take after a question answered with no: others must act first. */
#define PATIENCE 8
/* Such questions in one turn from which on a warp counts as doing nothing else. */
#define ONLY_ASKS (PATIENCE / 2)
/* All warps of a block do nothing but ask, and nobody arrives: after so long nobody will. */
#define HOPELESS_SECONDS 2.0

enum { INIT, INVAL, ARRIVE, DROP, WAIT, WAIT_PARITY, EXPECT, COMPLETE };

#define COUNT_MASK 0xfffffu
#define EXPECTED(word) ((uint32_t)(word) & COUNT_MASK)
#define PENDING(word) ((uint32_t)((word) >> 20) & COUNT_MASK)
#define BYTES(word) ((int64_t)((word) << 3) >> 43)
#define PHASE(word) ((word) >> 63)

/* made: the shadow's entry of its init. */
typedef struct kw_mbarrier { uint32_t address, made, arriving[KW_LANES], completed[KW_LANES]; } kw_mbarrier;

struct kw_mbarriers {
  kw_mbarrier *list;
  uint32_t n, capacity;
  uint32_t asked[KW_LANES], site[KW_LANES], at[KW_LANES]; /* each warp: refusals of its turn, the last one's site and word */
  uint8_t lane[KW_LANES];
  uint64_t arrivals, seen;
  double since;
};

static uint64_t packed(uint64_t phase, int64_t bytes, uint32_t pending, uint32_t expected) {
  return phase << 63 | ((uint64_t)bytes & 0x1fffff) << 40 | (uint64_t)(pending & COUNT_MASK) << 20 | (expected & COUNT_MASK);
}

static kw_mbarriers *all_of(kw_block *b) {
  if (!b->mbarriers) b->mbarriers = calloc(1, sizeof *b->mbarriers);
  return b->mbarriers;
}

static kw_mbarrier *find(kw_mbarriers *m, uint32_t address) {
  for (uint32_t i = 0; i < m->n; i++)
    if (m->list[i].address == address) return &m->list[i];
  if (m->n == m->capacity) {
    kw_mbarrier *grown = realloc(m->list, (2ull * m->capacity + 8) * sizeof *grown);
    if (!grown) return NULL;
    m->list = grown;
    m->capacity = 2 * m->capacity + 8;
  }
  m->list[m->n] = (kw_mbarrier){.address = address};
  return &m->list[m->n++];
}

void kw_start_mbarriers(kw_block *b) {
  if (!b->mbarriers) return;
  b->mbarriers->n = 0;
  b->mbarriers->since = 0;
}

/* Event numbers begin anew. */
void kw_forget_mbarrier_orders(kw_block *b) {
  for (uint32_t i = 0; b->mbarriers && i < b->mbarriers->n; i++) {
    b->mbarriers->list[i].made = 0;
    memset(b->mbarriers->list[i].arriving, 0, sizeof b->mbarriers->list[i].arriving);
    memset(b->mbarriers->list[i].completed, 0, sizeof b->mbarriers->list[i].completed);
  }
}

void kw_free_mbarriers(kw_block *b) {
  if (b->mbarriers) free(b->mbarriers->list);
  free(b->mbarriers);
}

/* What one lane does; its answer: the word before, or 0 and 1 for a question. */
static uint64_t one(kw_warp *w, kw_mbarriers *m, kw_mbarrier *bar, uint64_t *word, int what, uint64_t given, int64_t bytes) {
  uint64_t before = *word, phase = PHASE(before);
  uint32_t expected = EXPECTED(before), pending = PENDING(before);
  int64_t open = BYTES(before);
  switch (what) {
    case INIT:
      memset(bar->arriving, 0, sizeof bar->arriving);
      memset(bar->completed, 0, sizeof bar->completed);
      *word = packed(0, 0, (uint32_t)given, (uint32_t)given);
      m->arrivals++;
      return 0;
    case INVAL:
      *word = KW_POISON16 * 0x0001000100010001ull;
      return 0;
    case WAIT:
    case WAIT_PARITY: {
      uint64_t done = (what == WAIT ? PHASE(given) : given & 1) != phase;
      if (done) kw_order_acquire(w, bar->completed);
      return done;
    }
    case EXPECT: open += bytes; break;
    case COMPLETE: open -= bytes; break;
    case DROP: expected -= (uint32_t)given; /* and arrives */
    default:
      open += bytes;
      pending -= (uint32_t)given;
      kw_order_release(w, bar->arriving);
  }
  m->arrivals++;
  if (!(pending & COUNT_MASK) && !open) {
    for (int v = 0; v < KW_LANES; v++)
      if (bar->arriving[v] > bar->completed[v]) bar->completed[v] = bar->arriving[v];
    phase ^= 1;
    pending = expected;
  }
  *word = packed(phase, open, pending, expected);
  return before;
}

/* Addresses in w->a; counts or states in d[0], bytes in d[1]; answers in d[0], as 64-bit lanes. Returns the lanes told yes. */
KW_API uint32_t kw_mbarrier_do(kw_warp *w, uint32_t mask, uint32_t site, int space, int what) {
  kw_mbarriers *m = all_of(w->block);
  uint32_t a[KW_LANES], allowed = mask, yes = 0, inside = 0;
  int shape, access = what == INIT || what == INVAL ? KW_STORE : KW_ATOMIC;
  if (!m) return ~0u;
  if (!fits(w, mask, site, 8, space, &shape)) allowed = kw_admit(w, mask, site, 8, access, space);
  for (uint32_t l = 0; l < KW_LANES; l++) {
    uint64_t past = space == KW_IN_SHARED ? ((const uint32_t *)w->a)[l] : w->a[l] - (uint64_t)w->shared;
    a[l] = (uint32_t)past;
    inside |= (uint32_t)(past < w->total_shared) << l;
  }
  for (uint32_t rest = allowed & ~inside; rest; rest &= rest - 1) {
    kw_finding *f = kw_report(w, KW_OUT_OF_BOUNDS, (int)site, __builtin_ctz(rest), w->a[__builtin_ctz(rest)], KW_ILLEGAL_ADDRESS);
    if (f && f->count == 1) {
      f->bytes = 8;
      f->access = access;
      f->lane_space = space;
      snprintf(f->message, sizeof f->message, "an mbarrier object must lie in shared memory");
    }
  }
  allowed &= inside;
  kw_touch(w, allowed, site, 8, a, NULL, 8);
  for (uint32_t l = 0; l < KW_LANES; l++) {
    if (!(mask >> l & 1)) continue;
    kw_mbarrier *bar = allowed >> l & 1 ? find(m, a[l]) : NULL;
    if (!bar) { /* not admitted: let it go on */
      w->d[0][l] = 0;
      yes |= 1u << l;
      continue;
    }
    if (what == INIT) bar->made = KW_ENTRY(kw_event(w, site), w->index) | l;
    else kw_judge_against(w, l, site, a[l], bar->made);
    uint64_t answer = one(w, m, bar, (uint64_t *)(w->shared + a[l]), what, w->d[0][l], (int64_t)w->d[1][l]);
    w->d[0][l] = answer;
    if (what != WAIT && what != WAIT_PARITY) continue;
    yes |= (uint32_t)answer << l;
    if (answer) continue;
    if (w->budget > PATIENCE) w->budget = PATIENCE;
    m->asked[w->index]++;
    m->site[w->index] = site;
    m->at[w->index] = a[l];
    m->lane[w->index] = (uint8_t)l;
  }
  return yes;
}

/* cp.async.mbarrier.arrive: an arrival once the lane's copies so far are done, which they are. Without `noinc` it is
 * itself expected, so that it changes no count. */
KW_API void kw_mbarrier_after_copies(kw_warp *w, uint32_t mask, uint32_t site, int space, int noinc) {
  kw_copies_handed_over(w, mask);
  for (int l = 0; l < KW_LANES; l++) w->d[0][l] = (uint64_t)(noinc != 0), w->d[1][l] = 0;
  kw_mbarrier_do(w, mask, site, space, ARRIVE);
}

/* Called after a turn in which every warp only went round loops: whether none of them can ever leave its own. */
int kw_mbarriers_stuck(kw_block *b) {
  kw_mbarriers *m = b->mbarriers;
  if (!m) return 0;
  int only = m->arrivals == m->seen;
  for (uint32_t i = 0; i < b->warps; i++) {
    const kw_warp *w = kw_warp_of(b, i);
    if (w->status == KW_YIELDED) only &= m->asked[i] >= ONLY_ASKS;
    m->asked[i] = 0;
  }
  m->seen = m->arrivals;
  if (!only) m->since = 0;
  else if (m->since == 0) m->since = kw_now();
  if (!only || kw_now() - m->since < HOPELESS_SECONDS) return 0;
  for (uint32_t i = 0; i < b->warps; i++) {
    kw_warp *w = kw_warp_of(b, i);
    if (w->status != KW_YIELDED) continue;
    kw_finding *f = kw_report(w, KW_DEADLOCK, (int)m->site[i], m->lane[i], 0, KW_LAUNCH_FAILURE);
    if (!f || f->count != 1) continue;
    uint64_t word;
    memcpy(&word, w->shared + m->at[i], sizeof word);
    f->access = KW_AT_BARRIER;
    int n = snprintf(f->message, sizeof f->message, "it waits at an mbarrier that expects %u arrivals; %u are missing",
                     EXPECTED(word), PENDING(word));
    if (BYTES(word)) snprintf(f->message + n, sizeof f->message - (size_t)n, ", and %lld bytes", (long long)BYTES(word));
  }
  b->stop = 1;
  return 1;
}
