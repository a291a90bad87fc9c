/* Which allocations a launch has to watch, and the shadows they get for it.
 *
 * The rule: what a launch may write is read off its code. A store whose address is derived from a kernel parameter or a
 * module's variable stays in that allocation (kw_admit sees to it), any other may go anywhere. Shadows are virtual memory,
 * shared mappings so that they do not count as a candidate's own data, and go back to a pool after the launch; what needs
 * more than an eighth of the machine's memory in all goes unwatched.
 */
#define _GNU_SOURCE
#include "runtime_global.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KW_SHADOW_BYTES (8ull << 30)
/* A region of more is given back after the launch: filled again it costs less than it would take from others. */
#define KW_KEPT_BYTES (256ull << 20)
/* Events of one launch: beyond them it goes on unwatched. A record has 12 bytes, touched one after the other. */
#define KW_LAUNCH_EVENTS (1u << 27)
#define KW_CHUNK 256u
#define KW_REGIONS 512
#define KW_PAST_BLOCKS (1ull << 26)

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static kw_watch watch = {.issued = 1};
static kw_region regions[KW_REGIONS];
static uint64_t reserved, room;
static pid_t owner;

static void *map_shared(uint64_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

/* After a fork two processes would write to one shadow; and once numbers run out all entries must go. */
static void forget_all(void) {
  for (int i = 0; i < KW_REGIONS; i++) {
    if (regions[i].memory) munmap(regions[i].memory, regions[i].bytes);
    regions[i] = (kw_region){0};
  }
  if (watch.records) munmap(watch.records, (uint64_t)KW_LAUNCH_EVENTS * sizeof(kw_record));
  watch.records = NULL;
  watch.issued = 1;
  reserved = 0;
  room = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 8;
  if (room > KW_SHADOW_BYTES) room = KW_SHADOW_BYTES;
  owner = getpid();
}

static void *take_region(uint64_t bytes) {
  kw_region *best = NULL, *empty = NULL;
  for (kw_region *g = regions; g < regions + KW_REGIONS; g++) {
    if (!g->memory) empty = g;
    else if (!g->taken && g->bytes >= bytes && (!best || g->bytes < best->bytes)) best = g;
  }
  if (!best) {
    for (kw_region *g = regions; g < regions + KW_REGIONS && (reserved + bytes > room || !empty); g++)
      if (g->memory && !g->taken) {
        munmap(g->memory, g->bytes);
        reserved -= g->bytes;
        *g = (kw_region){0};
        empty = g;
      }
    if (!empty || reserved + bytes > room || !(empty->memory = map_shared(bytes))) return NULL;
    empty->bytes = bytes;
    reserved += bytes;
    best = empty;
  }
  best->taken = 1;
  return best->memory;
}

/* ---- what the code may write and read */

static struct kw_target *target_of(kw_watch *v, uint64_t base) {
  for (uint32_t i = 0; i < v->n_targets; i++)
    if (v->targets[i].base == base) return &v->targets[i];
  v->targets[v->n_targets] = (struct kw_target){.base = base, .granule = 4};
  return &v->targets[v->n_targets++];
}

static uint64_t pointer_of(const kw_run *r, const kw_site *site) {
  uint64_t pointer = 0;
  if (site->variable >= 0) return r->symbols[site->variable];
  if (site->parameter >= 0) memcpy(&pointer, r->params + site->parameter, sizeof pointer);
  return pointer;
}

static int plan(kw_watch *v, const kw_run *r) {
  v->unknown_store = v->unknown_load = 0;
  v->unknown_granule = 4;
  v->n_targets = 0;
  v->targets = malloc((r->n_sites + 1) * sizeof *v->targets);
  if (!v->targets) return 0;
  int written = 0;
  for (uint32_t i = 0; i < r->n_sites; i++) {
    const kw_site *site = &r->sites[i];
    if ((site->space != KW_IN_GLOBAL && site->space != KW_IN_GENERIC) || site->variable == KW_ELSEWHERE) continue;
    if (site->access > KW_ATOMIC) continue;
    uint64_t base, bytes, pointer = pointer_of(r, site);
    uint32_t granule = site->granule ? site->granule : 4;
    int kind, writes = site->access != KW_LOAD, reads = site->access != KW_STORE;
    written |= writes;
    if (!pointer || !kw_range_of(pointer, &base, &bytes, &kind)) {
      v->unknown_store |= writes;
      v->unknown_load |= reads;
      if (granule < v->unknown_granule) v->unknown_granule = granule;
      continue;
    }
    struct kw_target *t = target_of(v, base);
    t->written |= (uint8_t)writes;
    t->read |= (uint8_t)reads;
    if (granule < t->granule) t->granule = granule;
  }
  return written;
}

/* ---- covers */

static kw_cover *new_cover(kw_watch *v, uint64_t base, uint64_t bytes, int kind, const char *name) {
  kw_cover *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->base = base;
  c->bytes = bytes;
  int written = v->unknown_store, read = v->unknown_load;
  uint32_t granule = v->unknown_granule;
  for (uint32_t i = 0; i < v->n_targets; i++)
    if (v->targets[i].base == base) {
      written |= v->targets[i].written;
      read |= v->targets[i].read;
      if (v->targets[i].granule < granule) granule = v->targets[i].granule;
    }
  /* What a kernel allocates itself may pass from block to block through its heap. */
  if (!written || kind == KW_CONST || !strcmp(name, "in-kernel malloc")) return c;
  c->shift = granule == 1 ? 0 : granule == 2 ? 1 : 2;
  uint64_t rows = read ? 3 : 1, n = ((bytes >> c->shift) + KW_LANES + 511) / 512 * 512;
  uint64_t *memory = take_region(rows * n * sizeof(uint64_t));
  if (!memory) return c;
  c->writer = memory;
  if (read) {
    c->reader = memory + n;
    c->second = memory + 2 * n;
  }
  return c;
}

kw_cover *kw_cover_at(kw_run *r, uint64_t address) {
  kw_watch *v = r->watch;
  if (!v) return NULL;
  pthread_mutex_lock(&v->lock);
  uint32_t low = 0, high = v->n_covers;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (v->covers[middle]->base <= address) low = middle + 1;
    else high = middle;
  }
  kw_cover *c = low ? v->covers[low - 1] : NULL;
  kw_allocation about;
  if ((!c || address - c->base >= c->bytes) && (c = NULL, kw_find(address, &about) == 1)) {
    if (v->n_covers == v->c_covers) {
      uint32_t larger = 2 * v->c_covers + 16;
      kw_cover **grown = realloc(v->covers, larger * sizeof *grown);
      if (grown) {
        v->covers = grown;
        v->c_covers = larger;
      }
    }
    if (v->n_covers < v->c_covers && (c = new_cover(v, about.base, about.bytes, about.kind, about.name))) {
      memmove(v->covers + low + 1, v->covers + low, (v->n_covers - low) * sizeof *v->covers);
      v->covers[low] = c;
      v->n_covers++;
    }
  }
  pthread_mutex_unlock(&v->lock);
  return c && c->writer ? c : NULL;
}

/* ---- a launch */

kw_watch *kw_watch_start(kw_run *r) {
  uint64_t threads = (uint64_t)r->block[0] * r->block[1] * r->block[2];
  if (!r->global_races || r->blocks * threads <= 1 || pthread_mutex_trylock(&busy) != 0) return NULL;
  kw_watch *v = &watch;
  if (owner != getpid() || v->issued > ~0u - 2 * KW_LAUNCH_EVENTS) forget_all();
  if (!v->records) v->records = map_shared((uint64_t)KW_LAUNCH_EVENTS * sizeof(kw_record));
  v->targets = NULL;
  v->pasts = NULL;
  v->parallel = (int)r->parallel;
  v->warps = (uint32_t)((threads + KW_LANES - 1) / KW_LANES);
  v->blocks = r->blocks;
  int watched = v->records && plan(v, r);
  if (!r->parallel && r->blocks > KW_PAST_BLOCKS) watched = 0;
  if (!watched) {
    free(v->targets);
    pthread_mutex_unlock(&busy);
    return NULL;
  }
  v->first = v->issued;
  v->end = v->first + KW_LAUNCH_EVENTS;
  v->numbers = (kw_numbers){v->first, v->parallel ? v->first : v->end};
  pthread_mutex_init(&v->lock, NULL);
  return v;
}

void kw_watch_end(kw_watch *v) {
  if (!v) return;
  if (!v->parallel) v->issued = v->numbers.next;
  if (v->issued > v->end) v->issued = v->end;
  if ((v->issued - v->first) * sizeof(kw_record) > KW_KEPT_BYTES) {
    munmap(v->records, (uint64_t)KW_LAUNCH_EVENTS * sizeof(kw_record));
    v->records = NULL;
  }
  for (uint32_t i = 0; i < v->n_covers; i++) free(v->covers[i]);
  free(v->covers);
  free(v->targets);
  v->covers = NULL;
  v->n_covers = v->c_covers = 0;
  for (kw_region *g = regions; g < regions + KW_REGIONS; g++) {
    g->taken = 0;
    if (g->bytes <= KW_KEPT_BYTES) continue;
    munmap(g->memory, g->bytes);
    reserved -= g->bytes;
    *g = (kw_region){0};
  }
  if (v->pasts) {
    for (uint64_t i = 0; i < v->blocks; i++) free(v->pasts[i].list);
    munmap(v->pasts, v->blocks * sizeof *v->pasts);
    v->pasts = NULL;
  }
  pthread_mutex_destroy(&v->lock);
  pthread_mutex_unlock(&busy);
}

int kw_more_numbers(kw_watch *v, kw_numbers *numbers) {
  if (!v || !v->parallel || v->issued >= v->end) return 0;
  uint32_t start = atomic_fetch_add(&v->issued, KW_CHUNK);
  if (start + KW_CHUNK > v->end) return 0;
  *numbers = (kw_numbers){start, start + KW_CHUNK};
  return 1;
}
