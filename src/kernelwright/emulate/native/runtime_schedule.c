/* Runs a launch: blocks in order, or on all cores where no block can see another; warps of a block in turn.
 *
 * The rule: a launch's result does not vary from run to run. Blocks run in parallel only where the code holds nothing
 * that could order them (module.py decides), and of several faulting blocks the lowest speaks for the launch.
 */
#define _GNU_SOURCE
#include "runtime_block.h"
#include "runtime_count.h"
#include "runtime_global.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xmmintrin.h>

/* Rounds in which no warp of the first block got anywhere but round a loop, before another one joins it. Where two wait
 * already, one round is enough: a grid barrier of n blocks would else take n * n / 2 times as many. */
#define PATIENCE 16
/* Several blocks that all wait take shorter and shorter turns, down to 64 backward branches, until one gets on. */
#define MOST_HASTE 6

atomic_int kw_interrupted;
static pthread_mutex_t run_lock = PTHREAD_MUTEX_INITIALIZER;
/* What a watchdog on another thread may read at any time: no pointers into memory that comes and goes. */
static struct { const char *volatile kernel; volatile int32_t where; volatile uint64_t block; volatile uint32_t thread; } now_at;

KW_API void kw_interrupt(void) { kw_interrupted = 1; }
KW_API void kw_clear_interrupt(void) { kw_interrupted = 0; }

void kw_note_place(const kw_warp *w) {
  now_at.where = w->where;
  now_at.block = w->block->index;
  now_at.thread = w->index * KW_LANES;
}

double kw_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum turn { STUCK, LOOPING, MOVED, DONE };

/* One turn for each warp of the block that can run. */
static enum turn take_turn(kw_block *b) {
  enum turn result = STUCK;
  for (uint32_t i = 0; i < b->warps; i++) {
    kw_warp *w = kw_warp_of(b, i);
    if (w->status == KW_EXITED || (w->status == KW_WAITS && !(w->live & ~w->waiting))) continue;
    if (i + 1 < b->warps) __builtin_prefetch((uint8_t *)kw_warp_of(b, i + 1) + KW_REGISTERS_AT);
    kw_note_place(w);
    w->status = KW_RUNNING;
    b->run->code(w);
    if (w->status == KW_STOPPED) return DONE;
    if (w->status == KW_YIELDED && result < LOOPING) result = LOOPING;
    if (w->status != KW_YIELDED) result = MOVED;
    if (w->status == KW_EXITED) b->done++;
    if (kw_complete_barriers(b)) result = MOVED;
  }
  if (b->done == b->warps) return DONE;
  if (result == LOOPING && kw_mbarriers_stuck(b)) return DONE;
  if (result == STUCK) {
    kw_resolve_stuck(b);
    if (b->stop) return DONE;
    return MOVED;
  }
  return result;
}

static int compare_blocks(const void *x, const void *y) {
  uint64_t a = ((const kw_finding *)x)->block, b = ((const kw_finding *)y)->block;
  return a < b ? -1 : a > b;
}

typedef struct printed { uint64_t block; kw_text text; struct printed *next; } printed;

/* A finished block's findings and text go to the launch. */
static void collect(kw_block *b) {
  kw_run *r = b->run;
  for (uint32_t i = 0; i < b->warps; i++) b->count += kw_warp_of(b, i)->count;
  pthread_mutex_lock(&run_lock);
  r->count += b->count;
  if (b->error && b->index < r->first_fault) {
    r->first_fault = b->index;
    r->error = b->error;
  }
  for (uint32_t i = 0; i < b->n_findings; i++) {
    const kw_finding *f = &b->findings[i];
    kw_finding *known = NULL;
    for (uint64_t k = 0; k < r->n_findings && !known; k++)
      if (r->findings[k].site == f->site && r->findings[k].cause == f->cause) known = &r->findings[k];
    if (!known) {
      kw_finding *grown = realloc(r->findings, (r->n_findings + 1) * sizeof *grown);
      if (!grown) break;
      r->findings = grown;
      known = &r->findings[r->n_findings++];
      *known = *f;
    } else if (f->block < known->block) {
      *known = *f;
    }
  }
  if (b->text.used) {
    printed *page = malloc(sizeof *page);
    if (page) {
      *page = (printed){b->index, b->text, (printed *)r->texts};
      r->texts = (kw_text *)page;
      memset(&b->text, 0, sizeof b->text);
    }
  }
  pthread_mutex_unlock(&run_lock);
}

static void note_where(kw_block *b) {
  kw_run *r = b->run;
  pthread_mutex_lock(&run_lock);
  for (uint32_t i = 0; i < b->warps && r->n_where < 64; i++) {
    const kw_warp *w = kw_warp_of(b, i);
    if (w->status == KW_EXITED) continue;
    r->where_block = b->index;
    r->where[r->n_where] = w->where;
    r->where_thread[r->n_where++] = i * KW_LANES + (w->live ? (uint32_t)__builtin_ctz(w->mask ? w->mask : w->live) : 0);
  }
  pthread_mutex_unlock(&run_lock);
}

static uint64_t next_block(kw_run *r) {
  if (r->deadline_s > 0 && kw_now() - r->started > r->deadline_s) r->interrupted = r->stop = 1;
  if (r->stop || kw_interrupted) return ~0ull;
  uint64_t i = atomic_fetch_add(&r->next, 1);
  return i < r->blocks && i <= r->first_fault ? i : ~0ull;
}

static void hand_in(kw_run *r, kw_counts *counts) {
  if (!counts) return;
  pthread_mutex_lock(&run_lock);
  kw_merge_counts(r, counts);
  pthread_mutex_unlock(&run_lock);
}

static void *parallel_worker(void *given) {
  kw_run *r = given;
  uint32_t control = _mm_getcsr();
  _mm_setcsr(0x1f80);
  kw_counts *counts = kw_new_counts(r);
  kw_block *b = kw_new_block(r, counts);
  for (uint64_t i; b && (i = next_block(r)) != ~0ull;) {
    kw_start_block(b, i);
    while (take_turn(b) != DONE) {}
    if (r->stop && b->done != b->warps && !b->stop) note_where(b);
    collect(b);
  }
  if (b) kw_free_block(b);
  hand_in(r, counts);
  _mm_setcsr(control);
  return NULL;
}

/* One thread; blocks one after the other, and side by side only where the first ones spin. */
static void run_in_order(kw_run *r) {
  uint32_t control = _mm_getcsr();
  _mm_setcsr(0x1f80);
  uint32_t limit = r->resident_limit ? r->resident_limit : 1, n = 0, idle = 0, streak = 0;
  kw_block **resident = calloc(limit, sizeof *resident);
  kw_block *spare = NULL;
  kw_counts *counts = kw_new_counts(r);
  int more = resident != NULL;
  while (more || n) {
    while (more && (!n || (n < limit && (r->cooperative || idle >= (n == 1 ? PATIENCE : 1))))) {
      uint64_t i = next_block(r);
      if (i == ~0ull) {
        more = 0;
      } else {
        kw_block *b = spare ? spare : kw_new_block(r, counts);
        spare = NULL;
        if (!b) {
          more = 0;
          break;
        }
        kw_start_block(b, i);
        resident[n++] = b;
        idle = 0;
      }
    }
    int moved = 0;
    for (uint32_t k = 0; k < n;) {
      resident[k]->haste = n == 1 ? 0 : streak < MOST_HASTE ? streak : MOST_HASTE;
      enum turn t = take_turn(resident[k]);
      moved |= t >= MOVED;
      if (t != DONE) {
        k++;
        continue;
      }
      kw_block *b = resident[k];
      if (r->stop && b->done != b->warps && !b->stop) note_where(b);
      collect(b);
      if (spare) kw_free_block(spare);
      spare = b;
      memmove(&resident[k], &resident[k + 1], (n - k - 1) * sizeof *resident);
      n--;
    }
    idle = moved ? 0 : idle + 1;
    streak = moved ? 0 : streak + 1;
  }
  if (spare) kw_free_block(spare);
  free(resident);
  hand_in(r, counts);
  _mm_setcsr(control);
}

static void gather_text(kw_run *r) {
  kw_text all = {0};
  for (;;) {
    printed **first = NULL;
    for (printed **p = (printed **)&r->texts; *p; p = &(*p)->next)
      if (!first || (*p)->block < (*first)->block) first = p;
    if (!first) break;
    printed *page = *first;
    *first = page->next;
    kw_text_add(&all, page->text.bytes, page->text.used);
    free(page->text.bytes);
    free(page);
  }
  r->text = all.bytes;
  r->text_bytes = all.used;
}

KW_API int kw_run_launch(kw_run *r) {
  r->blocks = (uint64_t)r->grid[0] * r->grid[1] * r->grid[2];
  r->next = 0;
  r->first_fault = ~0ull;
  r->started = kw_now();
  now_at.kernel = r->kernel;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  uint64_t workers = r->parallel ? (uint64_t)(cores > 0 ? cores : 1) : 1;
  if (r->worker_limit && workers > r->worker_limit) workers = r->worker_limit;
  if (workers > r->blocks) workers = r->blocks;
  if (workers > 256) workers = 256;
  r->watch = kw_watch_start(r);
  if (!r->parallel) {
    run_in_order(r);
  } else {
    pthread_t threads[256];
    uint64_t started = 0;
    while (started + 1 < workers && pthread_create(&threads[started], NULL, parallel_worker, r) == 0) started++;
    parallel_worker(r);
    for (uint64_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
  }
  kw_watch_end(r->watch);
  r->watch = NULL;
  now_at.kernel = NULL;
  kw_finish_counts(r);
  if (r->interrupted || kw_interrupted) {
    r->interrupted = 1;
    if (!r->error) r->error = KW_TIMEOUT;
  }
  uint64_t kept = 0;
  for (uint64_t i = 0; i < r->n_findings; i++)
    if (r->findings[i].block <= r->first_fault) r->findings[kept++] = r->findings[i];
  r->n_findings = kept;
  if (kept) qsort(r->findings, kept, sizeof *r->findings, compare_blocks);
  gather_text(r);
  return r->error;
}

KW_API void kw_run_release(kw_run *r) {
  free(r->findings);
  free(r->text);
  r->findings = NULL;
  r->text = NULL;
}

/* For a watchdog on another thread: the running kernel's name and the code block of some running warp; 0 when idle. */
KW_API int kw_where(const char **kernel, int32_t *where, uint64_t *block, uint32_t *thread) {
  *kernel = now_at.kernel;
  *where = now_at.where;
  *block = now_at.block;
  *thread = now_at.thread;
  return *kernel != NULL;
}
