/* What orders the warps of a block, as their shared memory's shadow counts it: events, barriers, fences, copies.
 *
 * The rule: whatever may order two accesses counts as doing so (a fence releases and acquires at once, an exited thread has
 * arrived everywhere): a missed race is a pity, a false one makes people switch the check off.
 */
#define _GNU_SOURCE
#include "runtime_global.h"
#include "runtime_block.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE_WORDS (sizeof(kw_line) / sizeof(uint32_t))

kw_shadow *kw_new_shadow(const kw_run *r, uint32_t warps) {
  kw_shadow *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->shift = r->granule == 1 ? 0 : r->granule == 2 ? 1 : 2;
  s->unwatched = !r->shared_races;
  s->granules = (uint32_t)((r->static_shared + r->dynamic_shared) >> s->shift) + KW_LANES;
  s->n_sites = r->n_sites;
  s->warps = warps;
  s->n_lines = s->granules / KW_LINE + 2;
  uint64_t entries = 3ull * s->granules + LINE_WORDS * s->n_lines + KW_RECENT_EVENTS + 3ull * warps * s->n_sites;
  s->bytes = entries * sizeof(uint32_t);
  s->memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (s->memory == MAP_FAILED) {
    free(s);
    return NULL;
  }
  s->writer = (uint32_t *)s->memory;
  s->reader = s->writer + s->granules;
  s->second = s->reader + s->granules;
  s->lines = (kw_line *)(s->second + s->granules);
  s->seen = s->second + s->granules + LINE_WORDS * s->n_lines;
  s->first = s->seen + (uint64_t)warps * s->n_sites;
  s->global_seen = s->first + (uint64_t)warps * s->n_sites;
  s->events = s->global_seen + (uint64_t)warps * s->n_sites;
  s->next = 1;
  s->own_numbers = (kw_numbers){1, 1};
  s->numbers = r->watch && !r->parallel ? &r->watch->numbers : &s->own_numbers;
  if (r->watch) kw_more_numbers(r->watch, s->numbers);
  return s;
}

void kw_free_shadow(kw_shadow *s) {
  for (int i = 0; i < KW_LANES; i++) free(s->copies[i].list);
  munmap(s->memory, s->bytes);
  free(s);
}

/* Every access so far comes before every access from now on. */
static void order_all(kw_block *b) {
  kw_shadow *s = b->shadow;
  s->full = s->next;
  s->global_full = s->numbers->next;
  for (uint32_t i = 0; i < s->warps; i++) {
    kw_warp *w = kw_warp_of(b, i);
    w->clock = s->interval[i] = s->next;
    w->global_clock = s->global_full;
  }
}

static void forget_orders(kw_shadow *s) {
  memset(s->known, 0, sizeof s->known);
  memset(s->released, 0, sizeof s->released);
  memset(s->has_released, 0, sizeof s->has_released);
  memset(s->fence, 0, sizeof s->fence);
  s->fenced = 0;
  memset(s->released_acquired, 0, sizeof s->released_acquired);
  s->fence_acquired = 0;
}

void kw_start_shadow(kw_block *b) {
  kw_shadow *s = b->shadow;
  if (s->next > KW_EVENTS / 2) {
    memset(s->memory, 0, (3ull * s->granules + LINE_WORDS * s->n_lines + 2ull * s->warps * s->n_sites) * sizeof(uint32_t));
    s->next = 1;
  }
  s->start = s->next;
  forget_orders(s);
  memset(s->acquired, 0, sizeof s->acquired);
  for (uint32_t i = 0; i < s->warps; i++) s->copies[i].n = s->copies[i].group = 0;
  order_all(b);
}

/* Event numbers are used up: only whether a granule was written is kept. */
static void renumber(kw_block *b) {
  kw_shadow *s = b->shadow;
  for (uint32_t g = 0; g < s->granules; g++) s->writer[g] = s->writer[g] >= s->start << 10 ? KW_ENTRY(1u, 0u) : 0;
  memset(s->reader, 0, (2ull * s->granules + LINE_WORDS * s->n_lines + 2ull * s->warps * s->n_sites) * sizeof(uint32_t));
  forget_orders(s);
  kw_forget_mbarrier_orders(b);
  s->start = 1;
  s->next = 2;
  kw_lose_past(b);
  order_all(b);
}

uint32_t kw_new_event(kw_warp *w, uint32_t site) {
  kw_shadow *s = w->shadow;
  if (s->next >= KW_EVENTS - 1) renumber(w->block);
  else if (s->next - s->full >= KW_RECENT_EVENTS) order_all(w->block);
  uint32_t event = s->next++, at = w->index * s->n_sites + site;
  s->events[event - s->full] = site;
  s->seen[at] = event;
  if (s->first[at] < s->interval[w->index]) s->first[at] = event;
  return event;
}

/* ---- named barriers and fences */

static void raise_to(uint32_t *these, const uint32_t *those, uint32_t n) {
  for (uint32_t v = 0; v < n; v++) these[v] = those[v] > these[v] ? those[v] : these[v];
}

void kw_order_release(kw_warp *w, uint32_t *clock) {
  kw_shadow *s = w->shadow;
  raise_to(clock, s->known[w->index], s->warps);
  clock[w->index] = s->next;
  if (s->acquired[w->index] > s->fence_acquired) s->fence_acquired = s->acquired[w->index];
  kw_lanes_met(w);
}

void kw_order_acquire(kw_warp *w, const uint32_t *clock) {
  kw_shadow *s = w->shadow;
  raise_to(s->known[w->index], clock, s->warps);
  if (s->fence_acquired > s->acquired[w->index]) s->acquired[w->index] = s->fence_acquired;
}

void kw_release(kw_warp *w, uint32_t id) {
  kw_shadow *s = w->shadow;
  kw_order_release(w, s->released[id & 15]);
  s->has_released[id & 15] = 1;
  if (s->acquired[w->index] > s->released_acquired[id & 15]) s->released_acquired[id & 15] = s->acquired[w->index];
}

/* Copies that a barrier overtakes are still to be waited for: their writes happen after it. */
static void carry_copies(kw_block *b) {
  kw_shadow *s = b->shadow;
  for (uint32_t i = 0; i < s->warps; i++) {
    kw_warp *w = kw_warp_of(b, i);
    uint32_t event = 0, of = ~0u;
    for (uint32_t k = 0; k < s->copies[i].n; k++) {
      const kw_pending *p = &s->copies[i].list[k];
      if (p->site != of || event < s->full) {
        event = kw_new_event(w, of = p->site);
        s->events[event - s->full] |= KW_CARRIED;
        s->seen[i * s->n_sites + of] = 0; /* a copy that starts from here on is another event */
      }
      uint32_t entry = KW_ENTRY(event, i) | p->lane;
      for (uint32_t g = p->address >> s->shift; g < (p->address + p->bytes) >> s->shift; g++) {
        s->writer[g] = entry;
        s->lines[g / KW_LINE].written = event;
      }
    }
  }
}

void kw_join(kw_block *b, uint32_t id, const uint32_t *lanes) {
  kw_shadow *s = b->shadow;
  int whole = !s->has_released[id];
  for (uint32_t i = 0; i < s->warps; i++) whole &= lanes[i] == kw_warp_of(b, i)->live;
  if (whole) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->warps; i++) most = s->acquired[i] > most ? s->acquired[i] : most;
    for (uint32_t i = 0; i < s->warps; i++) s->acquired[i] = most;
    order_all(b);
  } else {
    uint32_t *joined = s->released[id];
    for (uint32_t i = 0; i < s->warps; i++)
      if (lanes[i]) kw_release(kw_warp_of(b, i), id);
    for (uint32_t i = 0; i < s->warps; i++) {
      if (!lanes[i]) continue;
      raise_to(s->known[i], joined, s->warps);
      s->interval[i] = s->next;
      kw_lanes_met(kw_warp_of(b, i));
      if (s->released_acquired[id] > s->acquired[i]) s->acquired[i] = s->released_acquired[id];
    }
  }
  s->released_acquired[id] = 0;
  memset(s->released[id], 0, sizeof s->released[id]);
  s->has_released[id] = 0;
  carry_copies(b);
}

/* membar, fence: pairs with every fence that another warp of the block made before. */
KW_API void kw_fence(kw_warp *w) {
  kw_shadow *s = w->shadow;
  s->known[w->index][w->index] = s->next;
  raise_to(s->fence, s->known[w->index], s->warps);
  raise_to(s->known[w->index], s->fence, s->warps);
  s->fenced = 1;
  uint32_t *mine = &s->acquired[w->index];
  if (*mine > s->fence_acquired) s->fence_acquired = *mine;
  *mine = s->fence_acquired;
  kw_lanes_met(w);
}

/* A fence that other blocks may see, too. */
KW_API void kw_fence_device(kw_warp *w) {
  kw_fence(w);
  kw_publish(w);
}

KW_API void kw_warp_met(kw_warp *w) { kw_lanes_met(w); }

/* ---- asynchronous copies */

void kw_copy_starts(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint32_t *a) {
  kw_copies *c = &w->shadow->copies[w->index];
  if (c->n + KW_LANES > c->capacity) {
    kw_pending *grown = realloc(c->list, (2ull * c->capacity + KW_LANES) * sizeof *grown);
    if (!grown) return;
    c->list = grown;
    c->capacity = 2 * c->capacity + KW_LANES;
  }
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(rest);
    c->list[c->n++] = (kw_pending){a[lane], bytes, lane, site, c->group};
  }
}

void kw_copies_handed_over(kw_warp *w, uint32_t lanes) {
  kw_copies *c = &w->shadow->copies[w->index];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < c->n; i++)
    if (!(lanes >> c->list[i].lane & 1)) c->list[kept++] = c->list[i];
  c->n = kept;
}

KW_API void kw_cp_commit(kw_warp *w) { w->shadow->copies[w->index].group++; }

/* Wait until at most `open` of the committed groups are under way; ~0: for everything. */
KW_API void kw_cp_wait(kw_warp *w, uint32_t open) {
  kw_copies *c = &w->shadow->copies[w->index];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < c->n; i++)
    if (open != ~0u && c->list[i].group + open >= c->group) c->list[kept++] = c->list[i];
  c->n = kept;
}
