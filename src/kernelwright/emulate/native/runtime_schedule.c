/* Runs a launch: blocks in order, or on all cores where no block can see another; warps of a block in turn.
 *
 * The rule: a launch's result does not vary from run to run. Blocks run in parallel only where the code holds nothing
 * that could order them (module.py decides), and of several faulting blocks the lowest speaks for the launch.
 */
#define _GNU_SOURCE
#include "runtime_block.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <xmmintrin.h>

/* Rounds in which no warp of any resident block got anywhere but round a loop, before another block joins them. */
#define PATIENCE 16
/* Of what is printed no more is kept; CUDA's default buffer is as large (cudaLimitPrintfFifoSize). */
#define KW_TEXT_BYTES (1u << 20)

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

void kw_text_add(kw_text *text, const char *bytes, size_t n) {
  if (text->used + n > KW_TEXT_BYTES) return;
  if (text->used + n > text->capacity) {
    size_t larger = 2 * (text->used + n) + 256;
    char *grown = realloc(text->bytes, larger);
    if (!grown) return;
    text->bytes = grown;
    text->capacity = larger;
  }
  memcpy(text->bytes + text->used, bytes, n);
  text->used += n;
}

/* A new or known finding of the running block; count tells which. error 0: an observation only. */
kw_finding *kw_report(kw_warp *w, int cause, int site, int lane, uint64_t address, int error) {
  kw_block *b = w->block;
  if (error && !b->error) b->error = error;
  for (uint32_t i = 0; i < b->n_findings; i++)
    if (b->findings[i].site == site && b->findings[i].cause == cause) {
      b->findings[i].count++;
      return &b->findings[i];
    }
  if (b->n_findings == b->c_findings) {
    uint32_t larger = b->c_findings ? 2 * b->c_findings : 4;
    kw_finding *grown = realloc(b->findings, larger * sizeof *grown);
    if (!grown) return NULL;
    b->findings = grown;
    b->c_findings = larger;
  }
  kw_finding *f = &b->findings[b->n_findings++];
  memset(f, 0, sizeof *f);
  f->cause = cause;
  f->site = site;
  f->block = b->index;
  f->thread = w->index * KW_LANES + (uint32_t)lane;
  f->address = address;
  f->count = 1;
  return f;
}

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

static uint64_t local_stride(const kw_run *r) { return round_up(r->local_bytes, 16); }

static void fill_poison(uint8_t *start, uint64_t bytes) {
  uint16_t *half = (uint16_t *)start;
  for (uint64_t i = 0; i < (bytes + 1) / 2; i++) half[i] = KW_POISON16;
}

/* Sizes of a block's mapping: warps with their registers, shared memory, local depots. */
typedef struct plan { uint64_t contexts, shared, local, sides, whole; uint32_t warps; } plan;

static plan plan_of(const kw_run *r) {
  plan p;
  p.warps = (r->block[0] * r->block[1] * r->block[2] + KW_LANES - 1) / KW_LANES;
  p.contexts = round_up((uint64_t)p.warps * (KW_REGISTERS_AT + r->register_bytes), 4096);
  p.shared = round_up(r->static_shared + r->dynamic_shared, 1024) + 1024;
  p.local = round_up((uint64_t)p.warps * KW_LANES * local_stride(r), 4096);
  p.sides = round_up((uint64_t)p.warps * KW_LANES * 2 * sizeof(uint32_t), 4096);
  p.whole = p.contexts + p.shared + p.local + p.sides;
  return p;
}

static kw_block *new_block(kw_run *r) {
  plan p = plan_of(r);
  kw_block *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->memory = mmap(NULL, p.whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  b->ranges = malloc((r->n_sites + 1) * sizeof *b->ranges);
  if (b->memory == MAP_FAILED || !b->ranges) {
    free(b->ranges);
    free(b);
    return NULL;
  }
  b->run = r;
  b->shared = b->memory + p.contexts;
  uint64_t total = r->static_shared + r->dynamic_shared;
  for (uint32_t i = 0; i < r->n_sites; i++) {
    const kw_site *s = &r->sites[i];
    kw_range range = {0xdead000000000000ull, 0};
    uint64_t low = 0, high = s->space == KW_IN_SHARED ? total : r->local_bytes;
    if (s->space == KW_IN_SHARED && s->low >= 0) {
      low = (uint64_t)s->low;
      if (s->high >= 0) high = (uint64_t)s->high;
    }
    if ((s->space == KW_IN_SHARED || s->space == KW_IN_LOCAL) && low + (uint64_t)s->bytes <= high)
      range = (kw_range){low, high - low - (uint64_t)s->bytes};
    b->ranges[i] = range;
  }
  return b;
}

static void free_block(kw_block *b) {
  munmap(b->memory, plan_of(b->run).whole);
  free(b->ranges);
  free(b->findings);
  free(b->text.bytes);
  free(b);
}

static void start_block(kw_block *b, uint64_t index) {
  kw_run *r = b->run;
  plan p = plan_of(r);
  b->index = index;
  b->threads = r->block[0] * r->block[1] * r->block[2];
  b->exited = b->done = 0;
  b->warps = p.warps;
  b->error = b->stop = 0;
  b->n_findings = b->turns_after_error = 0;
  b->count = 0;
  memset(b->barriers, 0, sizeof b->barriers);
  fill_poison(b->shared, r->static_shared + r->dynamic_shared);
  uint8_t *local = b->shared + p.shared;
  if (r->local_bytes) fill_poison(local, (uint64_t)p.warps * KW_LANES * local_stride(r));
  uint32_t *sides = (uint32_t *)(local + p.local);
  b->ctaid[0] = (uint32_t)(index % r->grid[0]);
  b->ctaid[1] = (uint32_t)(index / r->grid[0] % r->grid[1]);
  b->ctaid[2] = (uint32_t)(index / r->grid[0] / r->grid[1]);
  for (uint32_t i = 0; i < p.warps; i++) {
    kw_warp *w = kw_warp_of(b, i);
    uint32_t left = b->threads - i * KW_LANES;
    memset(w->pcs, 0, sizeof w->pcs);
    w->live = left >= KW_LANES ? ~0u : (1u << left) - 1;
    w->mask = w->waiting = w->sync_lanes = w->barrier_lanes = w->rotate = w->sync_any = w->sync_passed = 0;
    w->status = KW_RUNNING;
    w->budget = KW_BUDGET;
    w->count = 0;
    w->where = 0;
    w->params = (uint8_t *)(uintptr_t)r->params;
    w->shared = b->shared;
    w->local_stride = local_stride(r);
    w->local = local + (uint64_t)i * KW_LANES * w->local_stride;
    w->block = b;
    w->ranges = b->ranges;
    w->index = i;
    w->symbols = r->symbols;
    w->dynamic_shared = r->static_shared;
    w->total_shared = (uint32_t)(r->static_shared + r->dynamic_shared);
    w->barrier_site = (int32_t *)(sides + (uint64_t)i * 2 * KW_LANES);
    w->members = sides + (uint64_t)i * 2 * KW_LANES + KW_LANES;
    for (int k = 0; k < 3; k++) {
      w->ctaid[k] = b->ctaid[k];
      w->ntid[k] = r->block[k];
      w->nctaid[k] = r->grid[k];
    }
    uint32_t t = i * KW_LANES, x = t % r->block[0], y = t / r->block[0] % r->block[1], z = t / r->block[0] / r->block[1];
    for (int l = 0; l < KW_LANES; l++) {
      w->tid[0][l] = x;
      w->tid[1][l] = y;
      w->tid[2][l] = z;
      if (++x == r->block[0]) {
        x = 0;
        if (++y == r->block[1]) {
          y = 0;
          z++;
        }
      }
    }
  }
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

static void *parallel_worker(void *given) {
  kw_run *r = given;
  uint32_t control = _mm_getcsr();
  _mm_setcsr(0x1f80);
  kw_block *b = new_block(r);
  for (uint64_t i; b && (i = next_block(r)) != ~0ull;) {
    start_block(b, i);
    while (take_turn(b) != DONE) {}
    if (r->stop && b->done != b->warps && !b->stop) note_where(b);
    collect(b);
  }
  if (b) free_block(b);
  _mm_setcsr(control);
  return NULL;
}

/* One thread; blocks one after the other, and side by side only where the first ones spin. */
static void run_in_order(kw_run *r) {
  uint32_t control = _mm_getcsr();
  _mm_setcsr(0x1f80);
  uint32_t limit = r->resident_limit ? r->resident_limit : 1, n = 0, idle = 0;
  kw_block **resident = calloc(limit, sizeof *resident);
  kw_block *spare = NULL;
  int more = resident != NULL;
  while (more || n) {
    if (more && (!n || (idle >= PATIENCE && n < limit))) {
      uint64_t i = next_block(r);
      if (i == ~0ull) {
        more = 0;
      } else {
        kw_block *b = spare ? spare : new_block(r);
        spare = NULL;
        if (!b) break;
        start_block(b, i);
        resident[n++] = b;
        idle = 0;
      }
    }
    int moved = 0;
    for (uint32_t k = 0; k < n;) {
      enum turn t = take_turn(resident[k]);
      moved |= t >= MOVED;
      if (t != DONE) {
        k++;
        continue;
      }
      kw_block *b = resident[k];
      if (r->stop && b->done != b->warps && !b->stop) note_where(b);
      collect(b);
      if (spare) free_block(spare);
      spare = b;
      memmove(&resident[k], &resident[k + 1], (n - k - 1) * sizeof *resident);
      n--;
    }
    idle = moved ? 0 : idle + 1;
  }
  if (spare) free_block(spare);
  free(resident);
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
  if (!r->parallel) {
    run_in_order(r);
  } else {
    pthread_t threads[256];
    uint64_t started = 0;
    while (started + 1 < workers && pthread_create(&threads[started], NULL, parallel_worker, r) == 0) started++;
    parallel_worker(r);
    for (uint64_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
  }
  now_at.kernel = NULL;
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
