/* What part of its allocation each pointer was handed out for: the extents of the tensor whose data pointer it is.
 *
 * Why: a slice keeps its parent's memory, so an index that leaves the slice stays inside the allocation and harms other
 * rows unseen. The rule: several tensors may start at one address, then the largest counts; a kernel may be meant to look
 * beyond its view, so leaving it is observed, not stopped.
 */
#include "runtime_warp.h"
#include <pthread.h>

#define KW_VIEWS 256u

typedef struct view { uint64_t pointer, low, high; } view;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static view views[KW_VIEWS];
static uint32_t next;

KW_API void kw_view(void *pointer, uint64_t before, uint64_t after) {
  uint64_t p = (uint64_t)pointer;
  if (!p) return;
  pthread_mutex_lock(&lock);
  view *v = NULL;
  for (uint32_t i = 0; i < KW_VIEWS && !v; i++)
    if (views[i].pointer == p) v = &views[i];
  if (!v) {
    v = &views[next++ % KW_VIEWS];
    *v = (view){p, p - before, p + after};
  }
  if (p - before < v->low) v->low = p - before;
  if (p + after > v->high) v->high = p + after;
  pthread_mutex_unlock(&lock);
}

int kw_view_of(uint64_t pointer, uint64_t *low, uint64_t *high) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < KW_VIEWS && !found; i++)
    if (views[i].pointer == pointer) {
      *low = views[i].low;
      *high = views[i].high;
      found = 1;
    }
  pthread_mutex_unlock(&lock);
  return found;
}

/* Memory has another owner, or none. */
void kw_drop_views(uint64_t base, uint64_t bytes) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < KW_VIEWS; i++)
    if (views[i].pointer - base < bytes) views[i] = (view){0, 0, 0};
  pthread_mutex_unlock(&lock);
}
