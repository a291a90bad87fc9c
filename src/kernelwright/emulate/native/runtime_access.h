/* What every helper that touches a kernel's memory shares: admission of a warp's 32 addresses.
 *
 * The rule: the common case is one comparison of the largest distance against the site's cached range; everything else
 * goes to kw_admit, which knows the allocation table and makes the findings.
 */
#ifndef KW_RUNTIME_ACCESS_H
#define KW_RUNTIME_ACCESS_H
#include "runtime_warp.h"

#define INLINE static inline __attribute__((always_inline))
/* No address is at this place: it is not canonical on x86-64 and not reached by 48-bit arithmetic. */
#define KW_EMPTY_RANGE 0xdead000000000000ull

/* The lanes of `mask` that may access w->a (32- or 64-bit addresses by space); findings for the others. */
uint32_t kw_admit(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, int access, int space);

/* Are all active addresses within the site's range and aligned? *dense: full warp, one element after the other. */
INLINE int fits_wide(const kw_warp *w, uint32_t mask, uint32_t site, const uint32_t bytes, int *dense) {
  const uint64_t *a = w->a;
  const uint64_t low = w->ranges[site].lo, first = a[0];
  uint64_t most = 0, bits = 0, apart = 0;
  if (mask == ~0u) {
    for (int l = 0; l < KW_LANES; l++) {
      uint64_t past = a[l] - low;
      most = past > most ? past : most;
      bits |= a[l];
      apart |= a[l] ^ (first + (uint64_t)l * bytes);
    }
  } else {
    apart = 1;
    for (int l = 0; l < KW_LANES; l++) {
      uint64_t on = -(uint64_t)(mask >> l & 1), past = (a[l] - low) & on;
      most = past > most ? past : most;
      bits |= a[l] & on;
    }
  }
  *dense = !apart;
  return most <= w->ranges[site].last && !(bits & (bytes - 1));
}

INLINE int fits_narrow(const kw_warp *w, uint32_t mask, uint32_t site, const uint32_t bytes, int *dense) {
  const uint32_t *a = (const uint32_t *)w->a;
  if (w->ranges[site].lo == KW_EMPTY_RANGE) {
    *dense = 0;
    return 0;
  }
  const uint32_t low = (uint32_t)w->ranges[site].lo, last = (uint32_t)w->ranges[site].last, first = a[0];
  uint32_t most = 0, bits = 0, apart = 0;
  if (mask == ~0u) {
    for (int l = 0; l < KW_LANES; l++) {
      uint32_t past = a[l] - low;
      most = past > most ? past : most;
      bits |= a[l];
      apart |= a[l] ^ (first + (uint32_t)l * bytes);
    }
  } else {
    apart = 1;
    for (int l = 0; l < KW_LANES; l++) {
      uint32_t on = -(mask >> l & 1u), past = (a[l] - low) & on;
      most = past > most ? past : most;
      bits |= a[l] & on;
    }
  }
  *dense = !apart;
  return most <= last && !(bits & (bytes - 1));
}

INLINE int kw_is_narrow(int space) { return space == KW_IN_SHARED || space == KW_IN_LOCAL; }

INLINE int fits(const kw_warp *w, uint32_t mask, uint32_t site, const uint32_t bytes, const int space, int *dense) {
  return kw_is_narrow(space) ? fits_narrow(w, mask, site, bytes, dense) : fits_wide(w, mask, site, bytes, dense);
}

/* Where lane l's address lies in this process. */
INLINE uint8_t *place(const kw_warp *w, const int space, int l) {
  if (space == KW_IN_SHARED) return w->shared + ((const uint32_t *)w->a)[l];
  if (space == KW_IN_LOCAL) return w->local + (uint64_t)l * w->local_stride + ((const uint32_t *)w->a)[l];
  return (uint8_t *)w->a[l];
}
#endif
