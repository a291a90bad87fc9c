/* Device printf, assert, trap, malloc: what a kernel calls that is not computing.
 *
 * Formats and their argument widths: CUDA C++ Programming Guide, "Formatted Output". The argument buffer is packed as
 * NVVM packs it: each argument aligned to its size, 32-bit integers as 4 bytes, reals as doubles.
 */
#include "runtime_warp.h"
#include <stdio.h>
#include <string.h>

void *kw_heap_take(size_t);
void kw_heap_give(void *);

/* A device string, as far as it may be read. */
static size_t string_at(uint64_t address, char *out, size_t room) {
  uint64_t base, bytes;
  int kind;
  if (!kw_range_of(address, &base, &bytes, &kind)) return 0;
  size_t n = 0;
  while (n + 1 < room && address + n < base + bytes && ((const char *)address)[n]) {
    out[n] = ((const char *)address)[n];
    n++;
  }
  out[n] = 0;
  return n;
}

typedef struct reader { const uint8_t *start; uint64_t at, room; } reader;

static uint64_t take(reader *r, uint64_t size) {
  uint64_t value = 0;
  r->at = (r->at + size - 1) / size * size;
  if (r->at + size <= r->room) memcpy(&value, r->start + r->at, size);
  r->at += size;
  return value;
}

/* Sizes other than h and l, and a precision of `*`: no part of CUDA's printf (as an H200 shows, driver 13.0, 2026-11-29). */
static int is_unknown(const char *from, const char *to) {
  for (const char *p = from; p < to; p++)
    if (strchr("zjt", *p) || (*p == '.' && p[1] == '*')) return 1;
  return 0;
}

static void print_one(kw_text *out, const char *format, reader *args) {
  char spec[64], made[1200], text[1024];
  for (const char *p = format; *p;) {
    if (*p != '%') {
      const char *q = strchr(p, '%');
      size_t n = q ? (size_t)(q - p) : strlen(p);
      kw_text_add(out, p, n);
      p += n;
      continue;
    }
    if (p[1] == '%') {
      kw_text_add(out, "%", 1);
      p += 2;
      continue;
    }
    size_t n = 0;
    int is_long = 0;
    const char *start = p;
    spec[n++] = *p++;
    while (*p && strchr("-+ #0123456789.*lhzjt", *p) && n < 48) {
      if (*p == '*') {
        n += (size_t)snprintf(spec + n, 12, "%d", (int)take(args, 4));
        p++;
        continue;
      }
      if (*p == 'l' || *p == 'z' || *p == 'j' || *p == 't') is_long = 1;
      else if (*p != 'h') spec[n++] = *p;
      p++;
    }
    char kind = *p ? *p++ : 0;
    int made_bytes = 0;
    if (is_unknown(start, p)) { /* printed as it is written */
      kw_text_add(out, start, (size_t)(p - start));
      continue;
    }
    if (kind && strchr("diouxX", kind)) {
      memcpy(spec + n, "ll", 2);
      spec[n + 2] = kind;
      spec[n + 3] = 0;
      uint64_t value = take(args, is_long ? 8 : 4);
      long long shown = is_long ? (long long)value : kind == 'd' || kind == 'i' ? (int32_t)value : (long long)(uint32_t)value;
      made_bytes = snprintf(made, sizeof made, spec, shown);
    } else if (kind && strchr("eEfFgGaA", kind)) {
      spec[n] = kind;
      spec[n + 1] = 0;
      uint64_t bits = take(args, 8);
      double value;
      memcpy(&value, &bits, 8);
      made_bytes = snprintf(made, sizeof made, spec, value);
    } else if (kind == 'c') {
      spec[n] = kind;
      spec[n + 1] = 0;
      made_bytes = snprintf(made, sizeof made, spec, (int)take(args, 4));
    } else if (kind == 'p') {
      spec[n] = kind;
      spec[n + 1] = 0;
      made_bytes = snprintf(made, sizeof made, spec, (void *)take(args, 8));
    } else if (kind == 's') {
      spec[n] = kind;
      spec[n + 1] = 0;
      text[0] = 0;
      string_at(take(args, 8), text, sizeof text);
      made_bytes = snprintf(made, sizeof made, spec, text);
    }
    if (made_bytes > 0) kw_text_add(out, made, (size_t)made_bytes < sizeof made ? (size_t)made_bytes : sizeof made - 1);
  }
}

/* The buffer behind a generic pointer: a local depot, or anything that may be read. */
static uint64_t readable(const kw_warp *w, int lane, uint64_t address) {
  uint64_t start = (uint64_t)w->local + (uint64_t)lane * w->local_stride, base, bytes;
  int kind;
  if (address - start < w->local_stride) return w->local_stride - (address - start);
  if (kw_range_of(address, &base, &bytes, &kind)) return base + bytes - address;
  return 0;
}

/* Formats in w->a, argument buffers in w->d[0]; the number of arguments' lane results is not modelled: 1 each in d[0]. */
KW_API void kw_vprintf(kw_warp *w, uint32_t mask) {
  char format[4096];
  for (int l = 0; l < KW_LANES; l++) {
    if (!(mask >> l & 1)) continue;
    reader args = {(const uint8_t *)w->d[0][l], 0, readable(w, l, w->d[0][l])};
    if (string_at(w->a[l], format, sizeof format)) print_one(&w->block->text, format, &args);
  }
}

/* message, file, function as addresses in d[0], d[2], d[3]; line in d[1]: the text of the first failing lane. */
KW_API void kw_assert(kw_warp *w, uint32_t mask, uint32_t site) {
  for (int l = 0; l < KW_LANES; l++) {
    if (!(mask >> l & 1)) continue;
    kw_finding *f = kw_report(w, KW_ASSERTION, (int)site, l, 0, KW_ASSERT);
    if (!f || f->count != 1) continue;
    f->access = KW_AT_ASSERT;
    char message[300] = "", file[120] = "";
    string_at(w->d[0][l], message, sizeof message);
    string_at(w->d[2][l], file, sizeof file);
    snprintf(f->message, sizeof f->message, "%s:%u: assertion `%s` failed", file, (uint32_t)w->d[1][l], message);
  }
}

KW_API void kw_trap(kw_warp *w, uint32_t mask, uint32_t site) {
  for (int l = 0; l < KW_LANES; l++) {
    if (!(mask >> l & 1)) continue;
    kw_finding *f = kw_report(w, KW_TRAPPED, (int)site, l, 0, KW_LAUNCH_FAILURE);
    if (f) f->access = KW_AT_TRAP;
  }
}

KW_API void kw_malloc(kw_warp *w, uint32_t mask) {
  for (int l = 0; l < KW_LANES; l++)
    if (mask >> l & 1) w->d[0][l] = (uint64_t)kw_heap_take(w->d[0][l]);
}

KW_API void kw_heap_free(kw_warp *w, uint32_t mask) {
  for (int l = 0; l < KW_LANES; l++)
    if (mask >> l & 1) kw_heap_give((void *)w->d[0][l]);
  for (uint32_t i = 0; i < w->block->run->n_sites; i++)
    if (w->block->run->sites[i].space != KW_IN_SHARED && w->block->run->sites[i].space != KW_IN_LOCAL)
      w->ranges[i] = (kw_range){0xdead000000000000ull, 0, NULL};
}

/* Reads of the clock by one warp of a block from which on it waits for time to pass, and so makes it pass. */
#define READS_OF_A_WAIT 16
#define MOST_STEPS 10

/* Nanoseconds, for every clock. Whoever reads it again and again is waiting: then it runs ahead, for all alike, by more with
 * every read, up to 1 ms, so that a kernel that only passes time takes next to none. */
KW_API uint64_t kw_clock(kw_warp *w) {
  static atomic_ullong ahead;
  if (++w->clock_reads > READS_OF_A_WAIT) {
    uint32_t steps = w->clock_reads - READS_OF_A_WAIT;
    ahead += 1000ull << (steps < MOST_STEPS ? steps : MOST_STEPS);
  }
  return (uint64_t)(kw_now() * 1e9) + ahead;
}
