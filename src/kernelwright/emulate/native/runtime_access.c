/* Loads and stores of a warp, 32 lanes at a time, checked.
 *
 * Why out of line: inlined into generated code they would be most of its compile time; called, they cost some 20 ns
 * (2026-11). The rule: a load that is not admitted gives poison, a store is dropped, the rest of the warp goes on.
 */
#include "runtime_global.h"
#include <string.h>

#define EACH(l, mask) for (uint32_t rest_ = (mask), l; rest_ && (l = (uint32_t)__builtin_ctz(rest_), 1); rest_ &= rest_ - 1)

static void poison_lanes(kw_warp *w, uint32_t lanes, const int size, const int parts) {
  static const uint16_t pattern[4] = {KW_POISON16, KW_POISON16, KW_POISON16, KW_POISON16};
  for (int j = 0; j < parts; j++)
    EACH(l, lanes) memcpy((uint8_t *)w->d + (size_t)j * KW_LANES * size + l * size, pattern, (size_t)size);
}

/* Whether some element holds poison, by its bits: rare enough to be looked into afterwards. */
#define HOLDS_POISON(size, pattern)                                                                                    \
  static inline int holds_poison_##size(const void *rows, const int parts) {                                           \
    const uint##size##_t *d = rows;                                                                                    \
    uint##size##_t least = 1;                                                                                          \
    for (int i = 0; i < parts * KW_LANES; i++) {                                                                       \
      uint##size##_t apart = d[i] ^ (uint##size##_t)(pattern);                                                         \
      least = apart < least ? apart : least;                                                                           \
    }                                                                                                                  \
    return !least;                                                                                                     \
  }
HOLDS_POISON(8, 0)
HOLDS_POISON(16, KW_POISON16)
HOLDS_POISON(32, KW_POISON16 * 0x10001u)
HOLDS_POISON(64, KW_POISON16 * 0x0001000100010001ull)

/* Spaces that reach global memory. */
#define IS_WIDE(space) ((space) == KW_IN_GLOBAL || (space) == KW_IN_GENERIC)

#define DEFINE(space_name, SPACE, size, parts)                                                                         \
  KW_API void kw_ld_##space_name##_##size##x##parts(kw_warp *w, uint32_t mask, uint32_t site) {                        \
    typedef uint##size##_t element;                                                                                    \
    enum { step = sizeof(element), bytes = step * parts };                                                             \
    element(*d)[KW_LANES] = (element(*)[KW_LANES])w->d;                                                                \
    int shape;                                                                                                         \
    uint32_t allowed = mask;                                                                                           \
    if (__builtin_expect(!fits(w, mask, site, bytes, SPACE, &shape), 0)) {                                             \
      allowed = kw_admit(w, mask, site, bytes, KW_LOAD, SPACE);                                                        \
      if (allowed != mask) poison_lanes(w, mask & ~allowed, step, parts);                                              \
      if (SPACE == KW_IN_GENERIC) kw_touch_generic(w, allowed, site, bytes, NULL, step);                               \
      if (IS_WIDE(SPACE)) kw_written(w, kw_cover_lanes(w, allowed, site, bytes, NULL, step));                          \
    } else if (IS_WIDE(SPACE)) {                                                                                       \
      kw_cover_read(w, mask, site, bytes, step, shape);                                                                \
    }                                                                                                                  \
    if (SPACE == KW_IN_SHARED) kw_shadow_load(w, allowed, site, bytes, step, shape);                                   \
    int poisoned = -1;                                                                                                 \
    if (allowed == ~0u && shape == KW_DENSE && SPACE != KW_IN_LOCAL) {                                                             \
      const element *p = (const element *)place(w, SPACE, 0);                                                          \
      if (SPACE != KW_IN_SHARED && step >= 2) poisoned = holds_poison_##size(p, parts);                                \
      for (int l = 0; l < KW_LANES; l++)                                                                               \
        for (int j = 0; j < parts; j++) d[j][l] = p[l * parts + j];                                                    \
    } else if (allowed == ~0u && shape == KW_BROADCAST && SPACE != KW_IN_LOCAL) {                                      \
      const element *p = (const element *)place(w, SPACE, 0);                                                          \
      element one[parts];                                                                                              \
      for (int j = 0; j < parts; j++) one[j] = p[j];                                                                   \
      for (int j = 0; j < parts; j++)                                                                                  \
        for (int l = 0; l < KW_LANES; l++) d[j][l] = one[j];                                                           \
    } else if (allowed == ~0u) {                                                                                       \
      for (int l = 0; l < KW_LANES; l++)                                                                               \
        for (int j = 0; j < parts; j++) d[j][l] = ((const element *)place(w, SPACE, l))[j];                            \
    } else {                                                                                                           \
      EACH(l, allowed)                                                                                                 \
      for (int j = 0; j < parts; j++) d[j][l] = ((const element *)place(w, SPACE, (int)l))[j];                         \
    }                                                                                                                  \
    if (SPACE != KW_IN_SHARED && step >= 2 && poisoned < 0) poisoned = holds_poison_##size(w->d, parts);               \
    if (__builtin_expect(poisoned > 0, 0)) kw_uninitialised(w, allowed, site, bytes, step, SPACE);                         \
  }                                                                                                                    \
  KW_API void kw_st_##space_name##_##size##x##parts(kw_warp *w, uint32_t mask, uint32_t site) {                        \
    typedef uint##size##_t element;                                                                                    \
    enum { step = sizeof(element), bytes = step * parts };                                                             \
    const element(*d)[KW_LANES] = (const element(*)[KW_LANES])w->d;                                                    \
    int shape;                                                                                                         \
    uint32_t allowed = mask;                                                                                           \
    uint64_t held = 0;                                                                                                 \
    if (__builtin_expect(!fits(w, mask, site, bytes, SPACE, &shape), 0)) {                                             \
      allowed = kw_admit(w, mask, site, bytes, KW_STORE, SPACE);                                                       \
      if (SPACE == KW_IN_GENERIC) kw_touch_generic(w, allowed, site, bytes, (const uint8_t *)w->d, step);              \
      if (IS_WIDE(SPACE)) held = kw_cover_lanes(w, allowed, site, bytes, (const uint8_t *)w->d, step);                 \
    } else if (IS_WIDE(SPACE)) {                                                                                       \
      held = kw_cover_write(w, mask, site, bytes, step, shape);                                                        \
    }                                                                                                                  \
    if (SPACE == KW_IN_SHARED) kw_shadow_store(w, allowed, site, bytes, step, shape);                                  \
    if (allowed == ~0u && shape == KW_DENSE && SPACE != KW_IN_LOCAL) {                                                             \
      element *p = (element *)place(w, SPACE, 0);                                                                      \
      for (int l = 0; l < KW_LANES; l++)                                                                               \
        for (int j = 0; j < parts; j++) p[l * parts + j] = d[j][l];                                                    \
    } else {                                                                                                           \
      EACH(l, allowed)                                                                                                 \
      for (int j = 0; j < parts; j++) ((element *)place(w, SPACE, (int)l))[j] = d[j][l];                               \
    }                                                                                                                  \
    if (IS_WIDE(SPACE)) kw_written(w, held);                                                                           \
  }

#define WIDTHS(space_name, SPACE)                                                                                      \
  DEFINE(space_name, SPACE, 8, 1) DEFINE(space_name, SPACE, 8, 2) DEFINE(space_name, SPACE, 8, 4)                      \
  DEFINE(space_name, SPACE, 16, 1) DEFINE(space_name, SPACE, 16, 2) DEFINE(space_name, SPACE, 16, 4)                   \
  DEFINE(space_name, SPACE, 32, 1) DEFINE(space_name, SPACE, 32, 2) DEFINE(space_name, SPACE, 32, 4)                   \
  DEFINE(space_name, SPACE, 32, 8) DEFINE(space_name, SPACE, 64, 1) DEFINE(space_name, SPACE, 64, 2)                   \
  DEFINE(space_name, SPACE, 64, 4)

WIDTHS(global, KW_IN_GLOBAL)
WIDTHS(shared, KW_IN_SHARED)
WIDTHS(local, KW_IN_LOCAL)
WIDTHS(generic, KW_IN_GENERIC)
