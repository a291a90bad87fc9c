/* What orders blocks with one another: fences that publish, and strong reads that acquire.
 *
 * The rule: whatever may order two blocks counts as doing so. A fence of the whole device publishes all that came before it
 * in its block, as far as barriers and fences let the fencing warp know; a volatile or atomic read that sees another
 * warp's volatile or atomic write has acquired whatever any block had published by then. So a grid barrier, a ticket
 * counter, a look-back and a lock all order what they guard, and a missing fence or barrier on either side shows.
 * Source: PTX ISA 9.0, 8.9 (release and acquire patterns, causality order).
 */
#define _GNU_SOURCE
#include "runtime_global.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Publications kept of one block; of older ones only what they published is, as if it had been from the first one on. */
#define KW_PUBLICATIONS 64u

static kw_past *past_of(kw_watch *v, uint64_t block) {
  if (!v->pasts) {
    void *p = mmap(NULL, v->blocks * sizeof *v->pasts, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    v->pasts = p;
  }
  return &v->pasts[block];
}

/* The block's times start anew: whatever it did counts as published. */
void kw_lose_past(kw_block *b) {
  kw_watch *v = b->run->watch;
  kw_past *p = v && !v->parallel ? past_of(v, b->index) : NULL;
  if (p) p->lost = 1;
}

void kw_publish(kw_warp *w) {
  kw_watch *v = w->block->run->watch;
  const kw_shadow *s = w->shadow;
  if (!v || v->parallel) return;
  kw_past *p = past_of(v, w->block->index);
  if (!p) return;
  uint32_t stride = v->warps + 1;
  if (p->n == p->capacity && p->n < KW_PUBLICATIONS) {
    uint32_t larger = p->capacity ? 4 * p->capacity : 1;
    uint32_t *grown = realloc(p->list, (uint64_t)larger * stride * sizeof *grown);
    if (!grown) {
      p->lost = 1;
      return;
    }
    p->list = grown;
    p->capacity = larger;
  }
  if (p->n == KW_PUBLICATIONS) {
    memmove(p->list + 1, p->list + stride + 1, ((uint64_t)(p->n - 1) * stride - 1) * sizeof *p->list);
    p->n--; /* the first row keeps its stamp and has what the second one published */
  }
  uint32_t *made = p->list + (uint64_t)p->n * stride, *last = p->n ? made - stride : NULL;
  made[0] = s->numbers->next;
  for (uint32_t u = 0; u < v->warps; u++) {
    uint32_t known = s->known[w->index][u] > s->full ? s->known[w->index][u] : s->full;
    made[1 + u] = u == w->index ? s->next : known;
    if (last && last[1 + u] > made[1 + u]) made[1 + u] = last[1 + u];
  }
  if (!last || memcmp(last + 1, made + 1, v->warps * sizeof *made)) p->n++;
}

/* Whether the event of that record, by that warp, was published before this warp last acquired. */
int kw_is_published(const kw_warp *w, const kw_record *record, uint32_t warp) {
  const kw_watch *v = w->block->run->watch;
  const uint32_t acquired = w->shadow->acquired[w->index];
  if (!v->pasts || record->block >= v->blocks) return 0;
  const kw_past *p = &v->pasts[record->block];
  if (p->lost) return 1;
  uint32_t low = 0, high = p->n, stride = v->warps + 1;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (p->list[(uint64_t)middle * stride] <= acquired) low = middle + 1;
    else high = middle;
  }
  return low && record->time < p->list[(uint64_t)(low - 1) * stride + 1 + warp];
}
