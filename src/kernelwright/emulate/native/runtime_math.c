/* The approximate functions, the directed roundings and the 16-bit formats, over the 32 lanes of w->d.
 *
 * The rule for what PTX calls approximate (ex2, lg2, sin, cos, tanh, rsqrt): computed in double precision and rounded
 * once, so within 0.51 ulp of the true value, where a GPU may be 2 ulp off; the launch lists them as approximate. All
 * else is exact: IEEE with the rounding asked for.
 */
#include "runtime_warp.h"
#include <fenv.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define LANES for (int l = 0; l < KW_LANES; l++)
#define INLINE static inline __attribute__((always_inline))

INLINE double as_double(uint64_t bits) { double x; memcpy(&x, &bits, 8); return x; }
INLINE uint64_t bits_of(double x) { uint64_t b; memcpy(&b, &x, 8); return b; }
INLINE float as_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
INLINE uint32_t float_bits(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }

/* 2^t for |t| <= 0.5: Taylor of exp(t ln 2), next term below 2^-44. */
INLINE double exp2_part(double t) {
  double y = t * 0.69314718055994530942;
  return 1 + y * (1 + y * (1 / 2.0 + y * (1 / 6.0 + y * (1 / 24.0 + y * (1 / 120.0 + y * (1 / 720.0 + y * (1 / 5040.0 +
         y * (1 / 40320.0 + y * (1 / 362880.0 + y / 3628800.0)))))))));
}

INLINE double exp2_double(double x) {
  x = x > 1000 ? 1000 : x < -1000 ? -1000 : x;
  /* Adding 1.5 * 2^52 rounds to an integer, which then lies in the low bits. */
  double shifted = x + 6755399441055744.0, whole = shifted - 6755399441055744.0;
  return exp2_part(x - whole) * as_double((bits_of(shifted) + 1023) << 52);
}

KW_API void kw_ex2(kw_warp *w) {
  float *x = (float *)w->d[0];
  LANES { float r = (float)exp2_double(x[l]); x[l] = x[l] != x[l] ? x[l] + x[l] : r; }
}

/* log2 of a float: mantissa in [sqrt(1/2), sqrt 2), atanh series to z^19, error below 2^-50. */
INLINE float log2_float(float given) {
  double x = given;
  uint64_t b = bits_of(x);
  int64_t e = (int64_t)((b - 0x3fe6a09e667f3bcdull) >> 52 << 52);
  double m = as_double(b - (uint64_t)e), n = (double)(int32_t)(e >> 52), z = (m - 1) / (m + 1), s = z * z;
  double series = z * (1 + s * (1 / 3.0 + s * (1 / 5.0 + s * (1 / 7.0 + s * (1 / 9.0 + s * (1 / 11.0 + s * (1 / 13.0 +
                  s * (1 / 15.0 + s * (1 / 17.0 + s / 19.0)))))))));
  float r = (float)(n + 2.8853900817779268147 * series);
  r = given == 0 ? -INFINITY : given < 0 ? NAN : r;
  return given != given ? given + given : given == INFINITY ? given : r;
}

KW_API void kw_lg2(kw_warp *w) {
  float *x = (float *)w->d[0];
  LANES x[l] = log2_float(x[l]);
}

KW_API void kw_sin(kw_warp *w) {
  float *x = (float *)w->d[0];
  LANES x[l] = (float)sin((double)x[l]);
}

KW_API void kw_cos(kw_warp *w) {
  float *x = (float *)w->d[0];
  LANES x[l] = (float)cos((double)x[l]);
}

KW_API void kw_tanh(kw_warp *w) {
  float *f = (float *)w->d[0];
  LANES {
    double x = f[l], s = x * x, r = 1 - 2 / (exp2_double(x * 2.8853900817779268147) + 1);
    /* Below 0.01 the difference cancels: the series' next term is below 2^-40. */
    double small = x * (1 - s * (1 / 3.0 - s * (2 / 15.0 - s * (17 / 315.0))));
    f[l] = f[l] != f[l] ? f[l] + f[l] : (float)(x < 0.01 && x > -0.01 ? small : r);
  }
}

KW_API void kw_rsqrt(kw_warp *w) {
  float *x = (float *)w->d[0];
  LANES x[l] = (float)(1 / __builtin_sqrt((double)x[l]));
}

KW_API void kw_rsqrt64(kw_warp *w) {
  double *x = (double *)w->d[0];
  LANES x[l] = 1 / __builtin_sqrt(x[l]);
}

/* ---- 16-bit formats ---------------------------------------------------------------------------------------------- */
float kw_half_to_float(uint16_t h) { return _cvtsh_ss(h); }
uint16_t kw_float_to_half(float f) { return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
float kw_bf16_to_float(uint16_t h) { return as_float((uint32_t)h << 16); }

INLINE uint16_t to_bf16(float f) {
  uint32_t b = float_bits(f);
  /* A NaN keeps its upper payload, made quiet, so that poison stays recognisable. */
  return f != f ? (uint16_t)(b >> 16 | 0x40) : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
uint16_t kw_float_to_bf16(float f) { return to_bf16(f); }

/* Double to float with round-to-odd: a second rounding to a format of at most 22 bits is then right. */
INLINE float float_to_odd(double s) {
  float f = (float)s;
  double back = f;
  uint32_t b = float_bits(f);
  int inexact = back != s && s == s;
  b -= inexact && __builtin_fabs(back) > __builtin_fabs(s);
  b |= (uint32_t)inexact;
  return as_float(b);
}

/* flush: what is below the smallest normal once rounded with an unbounded exponent becomes zero (a tie rounds up). */
KW_API void kw_fma_f16(kw_warp *w, int flush) {
  uint16_t *a = (uint16_t *)w->d[0], *b = (uint16_t *)w->d[1], *c = (uint16_t *)w->d[2];
  /* Sum and product of halves are exact in double precision wherever the result is a finite half. */
  LANES {
    double s = (double)_cvtsh_ss(a[l]) * _cvtsh_ss(b[l]) + _cvtsh_ss(c[l]);
    s = flush && __builtin_fabs(s) < 0x1p-14 * (1 - 0x1p-12) ? __builtin_copysign(0.0, s) : s;
    a[l] = _cvtss_sh(float_to_odd(s), 0);
  }
}

KW_API void kw_fma_bf16(kw_warp *w) {
  uint16_t *a = (uint16_t *)w->d[0], *b = (uint16_t *)w->d[1], *c = (uint16_t *)w->d[2];
  LANES {
    double p = (double)as_float((uint32_t)a[l] << 16) * as_float((uint32_t)b[l] << 16), q = as_float((uint32_t)c[l] << 16);
    double s = p + q, t = s - p, error = (p - (s - t)) + (q - t);
    uint64_t bits = bits_of(s);
    int inexact = error != 0 && error == error && __builtin_fabs(s) < INFINITY;
    bits -= inexact && ((error < 0) != (s < 0));
    bits |= (uint64_t)inexact;
    a[l] = to_bf16(float_to_odd(as_double(bits)));
  }
}

/* An integer as a double whose last bit says whether anything was lost. */
static double integer_to_odd(uint64_t magnitude, int negative) {
  int shifts = magnitude >> 53 ? 11 - __builtin_clzll(magnitude) : 0;
  uint64_t kept = magnitude >> shifts;
  double size = ldexp((double)(kept | (kept << shifts != magnitude)), shifts);
  return negative ? -size : size;
}

/* To a bfloat16: nearest even (0), toward zero (1), down (2) or up (3). Sources as for kw_to_f16. */
KW_API void kw_to_bf16(kw_warp *w, int source, int mode) {
  uint16_t *out = (uint16_t *)w->d[1], made[KW_LANES];
  LANES {
    int64_t i = (int64_t)w->d[0][l];
    double x = source == 0 ? (double)((const float *)w->d[0])[l] : source == 1 ? ((const double *)w->d[0])[l]
             : source == 2 ? integer_to_odd(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, i < 0) : integer_to_odd((uint64_t)i, 0);
    float f = float_to_odd(x);
    uint32_t bits = float_bits(f);
    if (f != f || mode == 0) made[l] = to_bf16(f);
    else made[l] = (uint16_t)((bits >> 16) + ((bits & 0xffff) && bits < 0x7f800000u && mode == 3) +
                              ((bits & 0xffff) && bits >> 31 && bits < 0xff800000u && mode == 2));
  }
  memcpy(out, made, sizeof made);
}

/* ---- eight bits: kind 0 is e4m3, which has no infinity, 1 is e5m2 ------------------------------------------------- */
/* Nearest even; beyond the largest number that number, of a NaN 0x7f. */
KW_API void kw_to_fp8(kw_warp *w, int kind) {
  const float *x = (const float *)w->d[0];
  uint8_t *out = (uint8_t *)w->d[1];
  const int fraction = kind ? 2 : 3, bias = kind ? 15 : 7, most = kind ? 0x7b : 0x7e;
  LANES {
    double size = __builtin_fabs((double)x[l]);
    int exponent = 0;
    frexp(size, &exponent);
    exponent = size == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    double steps = __builtin_rint(ldexp(size < 1e6 ? size : 1e6, fraction - exponent));
    int code = (int)steps + ((exponent + bias - 1) << fraction);
    code = code > most ? most : code;
    out[l] = (uint8_t)(x[l] != x[l] ? 0x7f : code | (float_bits(x[l]) >> 31 << 7));
  }
}

KW_API void kw_fp8_to_f16(kw_warp *w, int kind) {
  const uint8_t *code = (const uint8_t *)w->d[0];
  uint16_t *out = (uint16_t *)w->d[1], made[KW_LANES];
  LANES {
    uint16_t c = code[l], size = c & 0x7f, sign = (uint16_t)((c & 0x80) << 8);
    if (kind) {
      made[l] = size > 0x7c ? 0x7fff : (uint16_t)(c << 8);
    } else if (size == 0x7f) {
      made[l] = 0x7fff;
    } else {
      double value = size >> 3 ? ldexp(8 + (size & 7), (size >> 3) - 10) : ldexp(size & 7, -9);
      made[l] = (uint16_t)(kw_float_to_half((float)value) | sign);
    }
  }
  memcpy(out, made, sizeof made);
}

/* To a half with rounding toward zero (1), down (2) or up (3). Sources: 0 float, 1 double, 2 s64, 3 u64 (narrower integers
 * are widened before). The double is first brought to odd-rounded float, which keeps on which side of every half it lies. */
KW_API void kw_to_f16(kw_warp *w, int source, int mode) {
  uint16_t *out = (uint16_t *)w->d[1];
  uint16_t made[KW_LANES];
  LANES {
    double x = source == 0 ? (double)((const float *)w->d[0])[l] : source == 1 ? ((const double *)w->d[0])[l]
             : source == 2 ? (double)((const int64_t *)w->d[0])[l] : (double)w->d[0][l];
    float f = float_to_odd(x);
    made[l] = mode == 1 ? _cvtss_sh(f, _MM_FROUND_TO_ZERO) : mode == 2 ? _cvtss_sh(f, _MM_FROUND_TO_NEG_INF)
            : mode == 3 ? _cvtss_sh(f, _MM_FROUND_TO_POS_INF) : _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
  }
  memcpy(out, made, sizeof made);
}

/* ---- directed rounding ------------------------------------------------------------------------------------------- */
/* In the order of codegen/rounding.py. */
enum { R_ADD, R_SUB, R_MUL, R_FMA, R_DIV, R_SQRT, R_RCP, R_F64_F32, R_S32_F32, R_U32_F32, R_S64_F32, R_U64_F32, R_S64_F64,
       R_U64_F64 };

/* A float result, flushed: zero if it is below the smallest normal when rounded with an unbounded exponent, as the same
 * operation on operands four times as large tells (H200, driver 13.0, 2026-11-29). Sums and roots need no such question. */
static __attribute__((optimize("O1", "rounding-math"))) float flushed(int op, float r, float a, float b, float c) {
  float smallest = 0x1p-126f;
  volatile float s = 4 * smallest, x = 4 * a, y = b, z = 4 * c;
  if (__builtin_fabsf(r) < smallest) return __builtin_copysignf(0, r);
  if (__builtin_fabsf(r) > smallest || r != r) return r;
  switch (op) {
    case R_MUL: s = x * y; break;
    case R_FMA: s = fmaf(x, y, z); break;
    case R_DIV: s = x / y; break;
    case R_RCP: x = a; s = 4.0f / x; break;
    default: break;
  }
  return __builtin_fabsf(s) < 4 * smallest ? __builtin_copysignf(0, r) : r;
}

/* Operands in d[0..2], the result in d[0]. `volatile` keeps each operation between the two mode switches. Mode 4 and above:
 * mode - 4 with flushed f32 results. */
KW_API __attribute__((optimize("O1", "rounding-math"))) void kw_rounded(kw_warp *w, int op, int wide, int mode) {
  static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  int before = fegetround();
  fesetround(modes[mode & 3]);
  LANES {
    if (wide) {
      volatile double a = ((double *)w->d[0])[l], b = ((double *)w->d[1])[l], c = ((double *)w->d[2])[l], r = 0;
      switch (op) {
        case R_ADD: r = a + b; break;
        case R_SUB: r = a - b; break;
        case R_MUL: r = a * b; break;
        case R_FMA: r = fma(a, b, c); break;
        case R_DIV: r = a / b; break;
        case R_SQRT: r = sqrt(a); break;
        case R_RCP: r = 1.0 / a; break;
        case R_S64_F64: r = (double)((int64_t *)w->d[0])[l]; break;
        case R_U64_F64: {
          uint64_t v = ((uint64_t *)w->d[0])[l];
          volatile double high = (double)(uint32_t)(v >> 32), low = (double)(uint32_t)v;
          r = fma(high, 4294967296.0, low);
          break;
        }
        default: break;
      }
      ((double *)w->d[0])[l] = r;
    } else {
      volatile float a = ((float *)w->d[0])[l], b = ((float *)w->d[1])[l], c = ((float *)w->d[2])[l], r = 0;
      switch (op) {
        case R_ADD: r = a + b; break;
        case R_SUB: r = a - b; break;
        case R_MUL: r = a * b; break;
        case R_FMA: r = fmaf(a, b, c); break;
        case R_DIV: r = a / b; break;
        case R_SQRT: r = sqrtf(a); break;
        case R_RCP: r = 1.0f / a; break;
        case R_F64_F32: r = (float)((volatile double *)w->d[0])[l]; break;
        case R_S32_F32: r = (float)((volatile int32_t *)w->d[0])[l]; break;
        case R_U32_F32: r = (float)(int64_t)((volatile uint32_t *)w->d[0])[l]; break;
        case R_S64_F32: r = (float)((volatile int64_t *)w->d[0])[l]; break;
        case R_U64_F32: {
          uint64_t v = ((volatile uint64_t *)w->d[0])[l];
          volatile int64_t half = (int64_t)(v >> 1 | (v & 1));
          r = v >> 63 ? 2.0f * (float)half : (float)(int64_t)v;
          break;
        }
        default: break;
      }
      ((float *)w->d[1])[l] = mode & 4 ? flushed(op, r, a, b, c) : r;
    }
  }
  if (!wide) memcpy(w->d[0], w->d[1], KW_LANES * sizeof(float));
  fesetround(before);
}

/* 64-bit integer quotients of d[0] by d[1] (never 0), in d[0]. */
KW_API void kw_divide64(kw_warp *w, int is_signed) {
  LANES {
    int64_t a = (int64_t)w->d[0][l], b = (int64_t)w->d[1][l];
    if (is_signed) w->d[0][l] = b == -1 ? 0 - (uint64_t)a : (uint64_t)(a / b);
    else w->d[0][l] = (uint64_t)a / (uint64_t)b;
  }
}

/* fns: of the mask in d[0], from bit d[1] on, the place of the |d[2]|-th bit that is set, upwards or downwards; else ~0. */
KW_API void kw_find_nth_set(kw_warp *w) {
  uint32_t *mask = (uint32_t *)w->d[0];
  const uint32_t *base = (const uint32_t *)w->d[1];
  const int32_t *offset = (const int32_t *)w->d[2];
  LANES {
    uint32_t set = mask[l], found = ~0u, steps = offset[l] < 0 ? 0u - (uint32_t)offset[l] : (uint32_t)offset[l];
    int by = offset[l] < 0 ? -1 : 1;
    for (int64_t at = base[l]; at >= 0 && at < 32; at += by) {
      if (!(set >> at & 1)) {
        if (!steps) break;
        continue;
      }
      if (steps <= 1) {
        found = (uint32_t)at;
        break;
      }
      steps--;
    }
    mask[l] = found;
  }
}
