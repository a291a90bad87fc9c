/* A block: its memory, its warps at their start, and what it has found and printed so far.
 *
 * The rule: one mapping holds warps, shared memory and local depots; shared and local memory start as poison in every
 * block, so that what one block leaves never reaches the next.
 */
#define _GNU_SOURCE
#include "runtime_shadow.h"
#include "runtime_block.h"
#include "runtime_count.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Of what is printed no more is kept; CUDA's default buffer is as large (cudaLimitPrintfFifoSize). */
#define KW_TEXT_BYTES (1u << 20)

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
  f->other_site = -1;
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

kw_block *kw_new_block(kw_run *r, kw_counts *counts) {
  plan p = plan_of(r);
  kw_block *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->memory = mmap(NULL, p.whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  b->ranges = malloc((r->n_sites + 1) * sizeof *b->ranges);
  b->shadow = kw_new_shadow(r, p.warps);
  if (b->memory == MAP_FAILED || !b->ranges || !b->shadow) {
    if (b->memory != MAP_FAILED) munmap(b->memory, p.whole);
    if (b->shadow) kw_free_shadow(b->shadow);
    free(b->ranges);
    free(b);
    return NULL;
  }
  b->run = r;
  b->counts = counts;
  b->shared = b->memory + p.contexts;
  uint64_t total = r->static_shared + r->dynamic_shared;
  for (uint32_t i = 0; i < r->n_sites; i++) {
    const kw_site *s = &r->sites[i];
    kw_range range = {0xdead000000000000ull, 0, NULL};
    uint64_t low = 0, high = s->space == KW_IN_SHARED ? total : r->local_bytes;
    if (s->space == KW_IN_SHARED && s->low >= 0) {
      low = (uint64_t)s->low;
      if (s->high >= 0) high = (uint64_t)s->high;
    }
    if ((s->space == KW_IN_SHARED || s->space == KW_IN_LOCAL) && low + (uint64_t)s->bytes <= high)
      range = (kw_range){low, high - low - (uint64_t)s->bytes, NULL};
    b->ranges[i] = range;
  }
  return b;
}

void kw_free_block(kw_block *b) {
  munmap(b->memory, plan_of(b->run).whole);
  kw_free_shadow(b->shadow);
  kw_free_mbarriers(b);
  free(b->ranges);
  free(b->findings);
  free(b->text.bytes);
  free(b);
}

void kw_start_block(kw_block *b, uint64_t index) {
  kw_run *r = b->run;
  plan p = plan_of(r);
  b->index = index;
  b->threads = r->block[0] * r->block[1] * r->block[2];
  b->exited = b->done = 0;
  b->warps = p.warps;
  b->error = b->stop = 0;
  b->haste = 0;
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
    w->clock_reads = 0;
    w->params = (uint8_t *)(uintptr_t)r->params;
    w->shared = b->shared;
    w->local_stride = local_stride(r);
    w->local = local + (uint64_t)i * KW_LANES * w->local_stride;
    w->block = b;
    w->ranges = b->ranges;
    w->index = i;
    w->shadow = b->shadow;
    w->counts = b->counts;
    w->cells = b->counts ? kw_cells_of(b->counts) : NULL;
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
    if (b->placed) continue; /* thread numbers are those of the block before */
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
  b->placed = 1;
  kw_start_shadow(b);
  kw_start_mbarriers(b);
}
