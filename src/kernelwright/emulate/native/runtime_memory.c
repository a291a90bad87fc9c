/* Device memory: who owns which range, red zones around it, poison in it, and quarantine behind it.
 *
 * Why: every access of a kernel is compared with this table, so it must know each allocation exactly, recognise freed
 * and host ranges, and cost nothing on big buffers. The rule: one sorted array under one lock; an address is looked up
 * by binary search, and only when a site's cached range misses.
 */
#define _GNU_SOURCE
#include "runtime_warp.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT 512u
#define RED_ZONE 512u
/* From here on the poison is a file page mapped again and again, copied only where written: 1 GiB costs 64 mmap calls. */
#define LAZY_BYTES (64ull << 20)
#define POISON_FILE_BYTES (16ull << 20)
#define QUARANTINE_BYTES (256ull << 20)
#define NEAR_BYTES (64ull << 10)
/* In-kernel malloc's heap, as cudaLimitMallocHeapSize defaults. */
#define HEAP_BYTES (8ull << 20)

typedef struct entry {
  kw_allocation about;
  void *block;               /* what free or munmap takes; NULL for adopted memory */
  uint64_t block_bytes;
  int lazy;
  uint64_t freed_at;         /* serial of the free; 0 while in use */
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *table;
static size_t entries, capacity;
static int serial;
static uint64_t free_serial;
static size_t in_use, peak, limit = ~(size_t)0, quarantined, heap_in_use;
static int poison_file = -1;

static void fill_poison(void *start, size_t bytes) {
  uint16_t *half = start;
  for (size_t i = 0; i < bytes / 2; i++) half[i] = KW_POISON16;
  if (bytes & 1) ((uint8_t *)start)[bytes - 1] = KW_POISON16 & 0xff;
}

/* Index of the last entry with base <= address, or -1. */
static ptrdiff_t last_not_above(uint64_t address) {
  ptrdiff_t low = 0, high = (ptrdiff_t)entries;
  while (low < high) {
    ptrdiff_t middle = (low + high) / 2;
    if (table[middle].about.base <= address) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

static void remove_at(ptrdiff_t i) {
  entry *e = &table[i];
  kw_drop_views(e->about.base, e->about.bytes);
  if (e->freed_at && e->block) {
    quarantined -= e->block_bytes;
    free(e->block);
  }
  memmove(&table[i], &table[i + 1], (entries - (size_t)i - 1) * sizeof(entry));
  entries--;
}

/* Freed or adopted ranges that a new owner's range overlaps are no longer true. */
static void drop_overlaps(uint64_t base, uint64_t bytes) {
  uint64_t end = base + (bytes ? bytes : 1);
  for (;;) {
    ptrdiff_t i = last_not_above(end - 1);
    if (i < 0) return;
    const kw_allocation *about = &table[i].about;
    if (about->base + (about->bytes ? about->bytes : 1) <= base) return;
    remove_at(i);
  }
}

static entry *insert(uint64_t base, uint64_t bytes, int kind, const char *name) {
  if (entries == capacity) {
    size_t larger = capacity ? 2 * capacity : 256;
    entry *grown = realloc(table, larger * sizeof(entry));
    if (!grown) return NULL;
    table = grown;
    capacity = larger;
  }
  ptrdiff_t at = last_not_above(base) + 1;
  memmove(&table[at + 1], &table[at], (entries - (size_t)at) * sizeof(entry));
  entries++;
  entry *e = &table[at];
  memset(e, 0, sizeof *e);
  e->about.base = base;
  e->about.bytes = bytes;
  e->about.kind = kind;
  e->about.id = ++serial;
  e->about.ndim = -1;
  if (name) snprintf(e->about.name, sizeof e->about.name, "%s", name);
  return e;
}

static int counts_as_device(int kind) {
  return kind == KW_GLOBAL || kind == KW_MANAGED || kind == KW_CONST;
}

static void *map_poison(size_t bytes) {
  if (poison_file < 0) {
    poison_file = memfd_create("poison", MFD_CLOEXEC);
    void *page = MAP_FAILED;
    if (poison_file >= 0 && ftruncate(poison_file, POISON_FILE_BYTES) == 0)
      page = mmap(NULL, POISON_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, poison_file, 0);
    if (page == MAP_FAILED) return NULL;
    fill_poison(page, POISON_FILE_BYTES);
    munmap(page, POISON_FILE_BYTES);
  }
  uint8_t *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return NULL;
  for (size_t done = 0; done < bytes; done += POISON_FILE_BYTES) {
    size_t piece = bytes - done < POISON_FILE_BYTES ? bytes - done : POISON_FILE_BYTES;
    if (mmap(start + done, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison_file, 0) ==
        MAP_FAILED) {
      munmap(start, bytes);
      return NULL;
    }
  }
  return start;
}

KW_API void *kw_alloc(size_t bytes, int kind, const char *name) {
  size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  size_t whole = rounded + 2 * RED_ZONE;
  if (whole < bytes) return NULL;
  pthread_mutex_lock(&lock);
  void *result = NULL;
  if (counts_as_device(kind) && (bytes > limit || in_use + bytes > limit)) goto out;
  int lazy = whole >= LAZY_BYTES;
  if (lazy) whole = (whole + 4095) / 4096 * 4096;
  uint8_t *block = lazy ? map_poison(whole) : aligned_alloc(ALIGNMENT, whole);
  if (!block) goto out;
  if (!lazy) fill_poison(block, whole);
  drop_overlaps((uint64_t)block, whole);
  entry *e = insert((uint64_t)block + RED_ZONE, bytes, kind, name);
  if (!e) {
    if (lazy) munmap(block, whole);
    else free(block);
    goto out;
  }
  e->block = block;
  e->block_bytes = whole;
  e->lazy = lazy;
  if (counts_as_device(kind)) {
    in_use += bytes;
    if (in_use > peak) peak = in_use;
  }
  result = block + RED_ZONE;
out:
  pthread_mutex_unlock(&lock);
  return result;
}

/* The oldest freed ranges leave quarantine first. */
static void shrink_quarantine(void) {
  while (quarantined > QUARANTINE_BYTES) {
    ptrdiff_t oldest = -1;
    for (size_t i = 0; i < entries; i++)
      if (table[i].freed_at && table[i].block && (oldest < 0 || table[i].freed_at < table[oldest].freed_at))
        oldest = (ptrdiff_t)i;
    if (oldest < 0) return;
    remove_at(oldest);
  }
}

KW_API int kw_free(void *base) {
  if (!base) return 0;
  pthread_mutex_lock(&lock);
  ptrdiff_t i = last_not_above((uint64_t)base);
  int result = -1;
  if (i >= 0 && table[i].about.base == (uint64_t)base && table[i].block && !table[i].freed_at) {
    entry *e = &table[i];
    if (counts_as_device(e->about.kind)) in_use -= e->about.bytes;
    kw_drop_views(e->about.base, e->about.bytes);
    e->about.kind = KW_FREED;
    e->freed_at = ++free_serial;
    if (e->lazy) {
      munmap(e->block, e->block_bytes);
      e->block = NULL;
    } else {
      quarantined += e->block_bytes;
      shrink_quarantine();
    }
    result = 0;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

KW_API void kw_adopt(void *base, size_t bytes, int kind, const char *name) {
  pthread_mutex_lock(&lock);
  ptrdiff_t i = last_not_above((uint64_t)base);
  /* Memory of ours that torch wraps stays ours: only its name is news. */
  if (i >= 0 && table[i].block && !table[i].freed_at &&
      (uint64_t)base - table[i].about.base < (table[i].about.bytes ? table[i].about.bytes : 1)) {
    if (name && *name) snprintf(table[i].about.name, sizeof table[i].about.name, "%s", name);
  } else {
    drop_overlaps((uint64_t)base, bytes);
    insert((uint64_t)base, bytes, kind, name);
  }
  pthread_mutex_unlock(&lock);
}

KW_API void kw_forget(void *base) {
  pthread_mutex_lock(&lock);
  ptrdiff_t i = last_not_above((uint64_t)base);
  if (i >= 0 && table[i].about.base == (uint64_t)base && !table[i].block) remove_at(i);
  pthread_mutex_unlock(&lock);
}

KW_API void kw_describe(void *base, const char *name, const char *dtype, const int64_t *shape, int ndim) {
  pthread_mutex_lock(&lock);
  ptrdiff_t i = last_not_above((uint64_t)base);
  if (i >= 0 && (uint64_t)base - table[i].about.base < (table[i].about.bytes ? table[i].about.bytes : 1)) {
    kw_allocation *about = &table[i].about;
    if (name && *name) snprintf(about->name, sizeof about->name, "%s", name);
    if (dtype) snprintf(about->dtype, sizeof about->dtype, "%s", dtype);
    if (ndim >= 0 && ndim <= 8) {
      about->ndim = ndim;
      for (int k = 0; k < ndim; k++) about->shape[k] = shape[k];
    }
  }
  pthread_mutex_unlock(&lock);
}

KW_API int kw_find(uint64_t addr, kw_allocation *out) {
  pthread_mutex_lock(&lock);
  ptrdiff_t i = last_not_above(addr);
  int result = 0;
  uint64_t best = NEAR_BYTES + 1;
  if (i >= 0) {
    uint64_t past = addr - table[i].about.base;
    if (past < table[i].about.bytes) {
      *out = table[i].about;
      result = 1;
    } else if (past - table[i].about.bytes < best) {
      best = past - table[i].about.bytes;
      *out = table[i].about;
      result = 2;
    }
  }
  if (result != 1 && i + 1 < (ptrdiff_t)entries && table[i + 1].about.base - addr < best) {
    *out = table[i + 1].about;
    result = 2;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

int kw_range_of(uint64_t address, uint64_t *base, uint64_t *bytes, int *kind) {
  pthread_mutex_lock(&lock);
  ptrdiff_t i = last_not_above(address);
  int inside = i >= 0 && address - table[i].about.base < table[i].about.bytes;
  if (inside) {
    *base = table[i].about.base;
    *bytes = table[i].about.bytes;
    *kind = table[i].about.kind;
  }
  pthread_mutex_unlock(&lock);
  return inside;
}

int kw_is_mapped(uint64_t address) {
  unsigned char resident;
  return mincore((void *)(address & ~4095ull), 1, &resident) == 0 || errno != ENOMEM;
}

KW_API size_t kw_bytes_in_use(void) { return in_use; }
KW_API size_t kw_peak_bytes(void) { return peak; }
KW_API void kw_set_memory_limit(size_t bytes) { limit = bytes; }

/* In-kernel malloc and free. */
void *kw_heap_take(size_t bytes) {
  if (heap_in_use + bytes > HEAP_BYTES) return NULL;
  void *p = kw_alloc(bytes, KW_GLOBAL, "in-kernel malloc");
  if (p) heap_in_use += bytes;
  return p;
}

void kw_heap_give(void *p) {
  uint64_t base, bytes;
  int kind;
  if (p && kw_range_of((uint64_t)p, &base, &bytes, &kind) && kw_free(p) == 0) heap_in_use -= bytes;
}
