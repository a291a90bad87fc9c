/* What every helper that touches a kernel's memory shares: admission of a warp's 32 addresses.
 *
 * The rule: the common case is one comparison of the largest distance against the site's cached range; everything else
 * goes to kw_admit, which knows the allocation table and makes the findings.
 */
#ifndef KW_RUNTIME_ACCESS_H
#define KW_RUNTIME_ACCESS_H
#include "runtime_warp.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
/* No address is at this place: it is not canonical on x86-64 and not reached by 48-bit arithmetic. */
#define KW_EMPTY_RANGE 0xdead000000000000ull

/* The lanes of `mask` that may access w->a (32- or 64-bit addresses by space); findings for the others. */
uint32_t kw_admit(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, int access, int space);

/* How the 32 addresses of a full warp lie; anything else, and every part of a warp, is scattered. */
enum kw_shape { KW_SCATTERED = 0, KW_DENSE = 1, KW_BROADCAST = 2 };

/* Is a[l] == a[0] + l * step for all lanes? Horizontal sums of vectors cost more than the comparison, masks do not. */
INLINE int kw_in_step32(const uint32_t *a, const uint32_t step) {
#ifdef __AVX512F__
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i low = _mm512_add_epi32(_mm512_set1_epi32((int)a[0]), _mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)step)));
  __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32((int)(16 * step)));
  return !(_mm512_cmpneq_epi32_mask(low, _mm512_loadu_si512(a)) | _mm512_cmpneq_epi32_mask(high, _mm512_loadu_si512(a + 16)));
#else
  uint32_t apart = 0;
  for (uint32_t l = 0; l < KW_LANES; l++) apart |= a[l] ^ (a[0] + l * step);
  return !apart;
#endif
}

INLINE int kw_in_step64(const uint64_t *a, const uint64_t step) {
#ifdef __AVX512F__
  uint32_t apart = 0;
  __m512i next = _mm512_add_epi64(_mm512_set1_epi64((long long)a[0]),
                                  _mm512_setr_epi64(0, (long long)step, 2 * (long long)step, 3 * (long long)step,
                                                    4 * (long long)step, 5 * (long long)step, 6 * (long long)step,
                                                    7 * (long long)step));
  for (int l = 0; l < KW_LANES; l += 8) {
    apart |= _mm512_cmpneq_epi64_mask(next, _mm512_loadu_si512(a + l));
    next = _mm512_add_epi64(next, _mm512_set1_epi64(8 * (long long)step));
  }
  return !apart;
#else
  uint64_t apart = 0;
  for (uint64_t l = 0; l < KW_LANES; l++) apart |= a[l] ^ (a[0] + l * step);
  return !apart;
#endif
}

/* Are all active addresses within the site's range and aligned? *shape: how they lie. */
INLINE int fits_wide(const kw_warp *w, uint32_t mask, uint32_t site, const uint32_t bytes, int *shape) {
  const uint64_t *a = w->a;
  const uint64_t low = w->ranges[site].lo, last = w->ranges[site].last, first = a[0], reach = a[KW_LANES - 1] - first;
  uint64_t most = 0, bits = 0;
  if (mask == ~0u) {
    if (reach == (KW_LANES - 1) * bytes && kw_in_step64(a, bytes)) {
      *shape = KW_DENSE;
      return first - low <= last && last - (first - low) >= reach && !(first & (bytes - 1));
    }
    if (!reach && kw_in_step64(a, 0)) {
      *shape = KW_BROADCAST;
      return first - low <= last && !(first & (bytes - 1));
    }
    for (int l = 0; l < KW_LANES; l++) {
      uint64_t past = a[l] - low;
      most = past > most ? past : most;
      bits |= a[l];
    }
  } else {
    for (int l = 0; l < KW_LANES; l++) {
      uint64_t on = -(uint64_t)(mask >> l & 1), past = (a[l] - low) & on;
      most = past > most ? past : most;
      bits |= a[l] & on;
    }
  }
  *shape = KW_SCATTERED;
  return most <= last && !(bits & (bytes - 1));
}

INLINE int fits_narrow(const kw_warp *w, uint32_t mask, uint32_t site, const uint32_t bytes, int *shape) {
  const uint32_t *a = (const uint32_t *)w->a;
  *shape = KW_SCATTERED;
  if (w->ranges[site].lo == KW_EMPTY_RANGE) return 0;
  const uint32_t low = (uint32_t)w->ranges[site].lo, last = (uint32_t)w->ranges[site].last, first = a[0];
  const uint32_t reach = a[KW_LANES - 1] - first;
  uint32_t most = 0, bits = 0;
  if (mask == ~0u) {
    if (reach == (KW_LANES - 1) * bytes && kw_in_step32(a, bytes)) {
      *shape = KW_DENSE;
      return first - low <= last && last - (first - low) >= reach && !(first & (bytes - 1));
    }
    if (!reach && kw_in_step32(a, 0)) {
      *shape = KW_BROADCAST;
      return first - low <= last && !(first & (bytes - 1));
    }
    for (int l = 0; l < KW_LANES; l++) {
      uint32_t past = a[l] - low;
      most = past > most ? past : most;
      bits |= a[l];
    }
  } else {
    for (int l = 0; l < KW_LANES; l++) {
      uint32_t on = -(mask >> l & 1u), past = (a[l] - low) & on;
      most = past > most ? past : most;
      bits |= a[l] & on;
    }
  }
  return most <= last && !(bits & (bytes - 1));
}

INLINE int kw_is_narrow(int space) { return space == KW_IN_SHARED || space == KW_IN_LOCAL; }

INLINE int fits(const kw_warp *w, uint32_t mask, uint32_t site, const uint32_t bytes, const int space, int *shape) {
  return kw_is_narrow(space) ? fits_narrow(w, mask, site, bytes, shape) : fits_wide(w, mask, site, bytes, shape);
}

/* Where lane l's address lies in this process. */
INLINE uint8_t *place(const kw_warp *w, const int space, int l) {
  if (space == KW_IN_SHARED) return w->shared + ((const uint32_t *)w->a)[l];
  if (space == KW_IN_LOCAL) return w->local + (uint64_t)l * w->local_stride + ((const uint32_t *)w->a)[l];
  return (uint8_t *)w->a[l];
}
#endif
