/* Matrix instructions of a warp: mma, ldmatrix, and the asynchronous copies that feed them.
 *
 * Fragments of mma lie as PTX ISA 9.0, 9.7.14.5 draws them; those of wmma, which PTX leaves open, in row order. The rule:
 * reals are summed as Hopper's tensor cores do it. Products are exact; they and the accumulator are cut, toward zero, at
 * 2^-25 of the power of two that is the largest exponent among them (of a product: the sum of its factors' exponents);
 * the exact sum of these is cut to an f32 or rounded to an f16. Doubles are summed one after the other. cp.async copies at
 * once, which every program that waits as it must cannot tell from later.
 * Source: Khattak and Mikaitis, arXiv 2512.07004, and their models at github.com/north-numerical-computing/MATLAB-tensor-core.
 */
#include "runtime_global.h"
#include <immintrin.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { T_F16, T_BF16, T_TF32, T_F64, T_S8, T_U8, T_F32, T_S32 };
enum { BY_MMA, BY_ROWS };
enum { ROLE_A, ROLE_B, ROLE_C };

#define A_AT 0
#define B_AT 1024
#define C_AT 2048

static int bits_of_type(int type) {
  return type == T_F64 ? 64 : type == T_F16 || type == T_BF16 ? 16 : type == T_S8 || type == T_U8 ? 8 : 32;
}

INLINE double bf16_value(uint16_t half) {
  uint32_t word = (uint32_t)half << 16;
  float f;
  memcpy(&f, &word, 4);
  return f;
}

/* The hardware looks at 19 of a tf32's 32 bits. */
INLINE double tf32_value(uint32_t word) {
  float f;
  word &= 0xffffe000u;
  memcpy(&f, &word, 4);
  return f;
}

INLINE int32_t s32_value(double value, int saturate) {
  int64_t whole = (int64_t)value;
  if (saturate) whole = whole > INT32_MAX ? INT32_MAX : whole < INT32_MIN ? INT32_MIN : whole;
  return (int32_t)(uint32_t)(uint64_t)whole;
}

/* Row and column of element e of register r in a lane; 0 where the register only repeats what others hold. */
static int place_of(int layout, int role, int rows, int columns, int bits, int lane, int r, int e, int *row, int *column) {
  int per = bits >= 32 ? 1 : 32 / bits;
  if (layout == BY_ROWS) {
    int each = rows * columns / KW_LANES, i = r * per + e;
    if (i >= each) return 0;
    *row = (lane * each + i) / columns;
    *column = (lane * each + i) % columns;
  } else if (role == ROLE_A) {
    *row = lane / 4 + 8 * (rows > 8 ? r & 1 : 0);
    *column = lane % 4 * per + e + (rows > 8 ? r >> 1 : r) * 4 * per;
  } else if (role == ROLE_B) {
    *row = lane % 4 * per + e + r * 4 * per;
    *column = lane / 4;
  } else if (per == 2) {
    *row = lane / 4 + 8 * r;
    *column = lane % 4 * 2 + e;
  } else {
    *row = lane / 4 + 8 * (r >> 1);
    *column = lane % 4 * 2 + (r & 1);
  }
  return *row < rows && *column < columns;
}

/* Where each element of a fragment belongs in its matrix, in the order of memory; -1 for one that only repeats another. */
typedef struct order { int key[5]; int count; struct order *next; int16_t at[8 * KW_LANES * 4]; } order;

static order *_Atomic orders;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static const order *find_order(const int key[5]) {
  for (const order *o = orders; o; o = o->next)
    if (!memcmp(o->key, key, sizeof o->key)) return o;
  return NULL;
}

static const order *order_of(int layout, int role, int rows, int columns, int bits) {
  const int key[5] = {layout, role, rows, columns, bits};
  const order *known = find_order(key);
  if (known) return known;
  pthread_mutex_lock(&making);
  known = find_order(key);
  order *made = known ? NULL : malloc(sizeof *made);
  if (made) {
    memcpy(made->key, key, sizeof key);
    int per = bits >= 32 ? 1 : 32 / bits, row = 0, column = 0, n = 0;
    for (int r = 0; r < 8; r++)
      for (int lane = 0; lane < KW_LANES; lane++)
        for (int e = 0; e < per; e++)
          made->at[n++] = place_of(layout, role, rows, columns, bits, lane, r, e, &row, &column)
                              ? (int16_t)(row * columns + column) : -1;
    made->count = n / 8;
    made->next = orders;
    orders = made;
    known = made;
  }
  pthread_mutex_unlock(&making);
  return known;
}

#define TAKE(c_type, expression)                                                                                       \
  for (int i = 0; i < n; i++) {                                                                                        \
    c_type v = ((const c_type *)start)[i];                                                                             \
    if (at[i] >= 0) matrix[at[i]] = (expression);                                                                      \
  }                                                                                                                    \
  break

static void take(const uint8_t *start, int layout, int role, int rows, int columns, int type, int registers,
                 double *matrix) {
  const order *o = order_of(layout, role, rows, columns, bits_of_type(type));
  if (!o) return;
  const int16_t *at = o->at;
  int n = o->count * registers;
  switch (type) {
    case T_F16: TAKE(uint16_t, _cvtsh_ss(v));
    case T_BF16: TAKE(uint16_t, bf16_value(v));
    case T_TF32: TAKE(uint32_t, tf32_value(v));
    case T_F64: TAKE(double, v);
    case T_S8: TAKE(int8_t, v);
    case T_U8: TAKE(uint8_t, v);
    case T_F32: TAKE(float, v);
    default: TAKE(int32_t, v);
  }
}

#define GIVE(c_type, expression)                                                                                       \
  for (int i = 0; i < n; i++) {                                                                                        \
    if (at[i] < 0) continue;                                                                                           \
    double v = matrix[at[i]];                                                                                          \
    ((c_type *)start)[i] = (expression);                                                                               \
  }                                                                                                                    \
  break

static void give(uint8_t *start, int layout, int rows, int columns, int type, int registers, const double *matrix,
                 int saturate) {
  const order *o = order_of(layout, ROLE_C, rows, columns, bits_of_type(type));
  if (!o) return;
  const int16_t *at = o->at;
  int n = o->count * registers;
  switch (type) {
    case T_F16: GIVE(uint16_t, _cvtss_sh((float)v, 0));
    case T_F64: GIVE(double, v);
    case T_F32: GIVE(float, (float)v);
    default: GIVE(int32_t, s32_value(v, saturate));
  }
}

/* Bits below the largest exponent that a sum keeps: those of an f32's fraction and two more. */
#define KEPT_BITS 25
#define NO_EXPONENT (-4096)

/* The exponent of each element, of a subnormal the smallest one of its type; far below all others for a zero. */
static void exponents(const double *matrix, int n, int smallest, int64_t *out) {
  for (int i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, &matrix[i], sizeof bits);
    int64_t e = (int64_t)(bits >> 52 & 2047) - 1023;
    e = e < smallest ? smallest : e;
    out[i] = matrix[i] == 0 ? NO_EXPONENT : e;
  }
}

static double power(int64_t exponent) {
  uint64_t bits = (uint64_t)(exponent + 1023) << 52;
  double made;
  memcpy(&made, &bits, sizeof made);
  return made;
}

static double cut_to_float(double value) {
  float near = (float)value;
  uint32_t bits;
  memcpy(&bits, &near, sizeof bits);
  if (__builtin_fabs((double)near) > __builtin_fabs(value)) bits--; /* one step toward zero, down from an infinity too */
  memcpy(&near, &bits, sizeof bits);
  return near;
}

static int smallest_exponent(int type) { return type == T_F16 ? -14 : -126; }

/* c += a * b in reals that a tensor core sums, terms from to until - 1; c_float: the result is an f32, else it stays as
   it is, to be rounded. */
static void add_terms(const double *a, const double *b, double *c, int m, int n, int k, int from, int until, int ab_type,
                      int c_float) {
  int64_t ea[32 * 32], eb[32 * 32], ec[32 * 32];
  exponents(a, m * k, smallest_exponent(ab_type), ea);
  exponents(b, k * n, smallest_exponent(ab_type), eb);
  exponents(c, m * n, c_float ? -126 : -14, ec);
  for (int i = 0; i < m; i++)
    for (int first = 0; first < n; first += 8) {
      double *out = c + i * n + first, products[32][8], plain[8], scale[8], unit[8];
      int64_t most[8], sum[8];
      for (int q = 0; q < 8; q++) {
        most[q] = ec[i * n + first + q];
        plain[q] = 0;
      }
      for (int l = from; l < until; l++)
        for (int q = 0; q < 8; q++) {
          int64_t e = ea[i * k + l] + eb[l * n + first + q];
          most[q] = e > most[q] ? e : most[q];
          products[l][q] = a[i * k + l] * b[l * n + first + q];
          plain[q] += products[l][q];
        }
      int finite = 1;
      for (int q = 0; q < 8; q++) {
        plain[q] += out[q];
        finite &= plain[q] - plain[q] == 0;
        int64_t top = most[q] < -900 ? -900 : most[q]; /* all are zero */
        scale[q] = power(KEPT_BITS - top);
        unit[q] = power(top - KEPT_BITS);
        sum[q] = (int64_t)(out[q] * scale[q]);
      }
      if (__builtin_expect(!finite, 0)) { /* these are not summed: a NaN keeps its payload, which tells where it is from */
        for (int q = 0; q < 8; q++) {
          if (plain[q] - plain[q] == 0) continue;
          sum[q] = 0;
          for (int l = from; l < until; l++) products[l][q] = 0;
        }
      }
      for (int l = from; l < until; l++)
        for (int q = 0; q < 8; q++) sum[q] += (int64_t)(products[l][q] * scale[q]);
      for (int q = 0; q < 8; q++) {
        double total = (double)sum[q] * unit[q];
        out[q] = plain[q] - plain[q] != 0 ? plain[q] : c_float ? cut_to_float(total) : total;
      }
    }
}

/* wmma sums tf32 four terms at a time (H200, driver 13.0, 2026-11-29); mma.m16n8k8 takes all eight at once. */
static void multiply(const double *a, const double *b, double *c, int m, int n, int k, int ab_type, int layout,
                     int c_float) {
  int step = layout == BY_ROWS && ab_type == T_TF32 ? 4 : k;
  for (int from = 0; from < k; from += step) add_terms(a, b, c, m, n, k, from, from + step, ab_type, c_float);
}

/* shape: m << 16 | n << 8 | k; types: a, b, c, d, four bits each; registers: a, b, c, d, eight bits each. */
KW_API void kw_mma(kw_warp *w, uint8_t *scratch, uint32_t shape, uint32_t types, uint32_t registers, int layout,
                   int saturate) {
  (void)w;
  int m = (int)(shape >> 16), n = (int)(shape >> 8 & 255), k = (int)(shape & 255);
  int a_type = (int)(types & 15), d_type = (int)(types >> 12 & 15);
  double a[32 * 32], b[32 * 32], c[32 * 32];
  take(scratch + A_AT, layout, ROLE_A, m, k, a_type, (int)(registers & 255), a);
  take(scratch + B_AT, layout, ROLE_B, k, n, (int)(types >> 4 & 15), (int)(registers >> 8 & 255), b);
  take(scratch + C_AT, layout, ROLE_C, m, n, (int)(types >> 8 & 15), (int)(registers >> 16 & 255), c);
  if (a_type == T_F16 || a_type == T_BF16 || a_type == T_TF32) {
    multiply(a, b, c, m, n, k, a_type, layout, d_type == T_F32);
  } else if (a_type == T_F64) {
    for (int i = 0; i < m; i++)
      for (int l = 0; l < k; l++)
        for (int j = 0; j < n; j++) c[i * n + j] = __builtin_fma(a[i * k + l], b[l * n + j], c[i * n + j]);
  } else {
    for (int i = 0; i < m; i++)
      for (int l = 0; l < k; l++)
        for (int j = 0; j < n; j++) c[i * n + j] += a[i * k + l] * b[l * n + j];
  }
  give(scratch + C_AT, layout, m, n, d_type, (int)(registers >> 24), c, saturate);
}

/* ldmatrix: lanes 8 i to 8 i + 7 hold the row addresses of matrix i; results in d[i]. */
KW_API void kw_ldmatrix(kw_warp *w, uint32_t site, int space, int count, int transposed) {
  uint32_t asked = count == 4 ? ~0u : (1u << 8 * count) - 1, allowed = asked;
  int shape;
  uint16_t rows[KW_LANES][8];
  if (!fits(w, asked, site, 16, space, &shape)) allowed = kw_admit(w, asked, site, 16, KW_LOAD, space);
  if (space == KW_IN_SHARED) KW_BY_GRANULE(kw_scattered_load, 16, w, allowed, site, 16, 16);
  else kw_touch_generic(w, allowed, site, 16, NULL, 16);
  for (int l = 0; l < 8 * count; l++) {
    if (allowed >> l & 1) memcpy(rows[l], place(w, space, l), 16);
    else
      for (int i = 0; i < 8; i++) rows[l][i] = KW_POISON16;
  }
  for (int i = 0; i < count; i++)
    for (int l = 0; l < KW_LANES; l++) {
      int r = l / 4, c = l % 4 * 2;
      uint32_t low = transposed ? rows[8 * i + c][r] : rows[8 * i + r][c];
      uint32_t high = transposed ? rows[8 * i + c + 1][r] : rows[8 * i + r][c + 1];
      ((uint32_t *)w->d[i])[l] = low | high << 16;
    }
}

/* cp.async: sources in w->a, targets (shared) in d[2], bytes to read in d[3]; the rest of `bytes` becomes zero. */
KW_API void kw_cp_async(kw_warp *w, uint32_t mask, uint32_t load_site, uint32_t store_site, uint32_t bytes) {
  uint8_t moved[KW_LANES][16];
  const uint32_t *targets = (const uint32_t *)w->d[2], *read = (const uint32_t *)w->d[3];
  for (int l = 0; l < KW_LANES; l++) {
    if (!(mask >> l & 1)) continue;
    uint32_t wanted = read[l] < bytes ? read[l] : bytes;
    memset(moved[l], 0, sizeof moved[l]);
    if (!wanted) continue;
    /* A part that is no power of two is looked up byte by byte's alignment, whole. */
    uint32_t unit = wanted == bytes ? bytes : 1;
    uint32_t good = 1;
    uint64_t start = w->a[l];
    for (uint32_t at = 0; at < wanted && good; at += unit) {
      w->a[l] = start + at;
      good = kw_admit(w, 1u << l, load_site, unit, KW_LOAD, KW_IN_GLOBAL);
    }
    w->a[l] = start;
    if (good) kw_written(w, kw_cover_lanes(w, 1u << l, load_site, bytes, NULL, bytes));
    if (good) memcpy(moved[l], (const void *)start, wanted);
    else
      for (uint32_t i = 0; i < wanted; i++) moved[l][i] = i & 1 ? KW_POISON16 >> 8 : KW_POISON16 & 255;
  }
  uint32_t *a = (uint32_t *)w->a;
  for (int l = 0; l < KW_LANES; l++) a[l] = targets[l];
  int shape;
  uint32_t allowed = mask;
  if (!fits(w, mask, store_site, bytes, KW_IN_SHARED, &shape))
    allowed = kw_admit(w, mask, store_site, bytes, KW_STORE, KW_IN_SHARED);
  kw_touch(w, allowed, store_site, bytes, a, NULL, bytes);
  kw_copy_starts(w, allowed, store_site, bytes, a);
  for (int l = 0; l < KW_LANES; l++)
    if (allowed >> l & 1) memcpy(place(w, KW_IN_SHARED, l), moved[l], bytes);
}
