/* Atomic operations of a warp: lane after lane, each a host atomic, so that parallel blocks stay correct.
 *
 * The rule: within a warp lanes take their turn in lane order, so that one block's result never varies.
 */
#include "runtime_global.h"
#include <string.h>

/* In the order of codegen/atomics.py. */
enum operation { ADD, MIN, MAX, AND, OR, XOR, EXCH, CAS, INC, DEC };
enum type { U32, S32, U64, S64, F32, F64, F16, BF16, F16X2, BF16X2, B16 };

float kw_half_to_float(uint16_t h);
uint16_t kw_float_to_half(float f);
float kw_bf16_to_float(uint16_t h);
uint16_t kw_float_to_bf16(float f);

static uint16_t add_half(uint16_t x, uint16_t y, int brain) {
  return brain ? kw_float_to_bf16(kw_bf16_to_float(x) + kw_bf16_to_float(y))
               : kw_float_to_half(kw_half_to_float(x) + kw_half_to_float(y));
}

static float half_value(uint16_t x, int brain) { return brain ? kw_bf16_to_float(x) : kw_half_to_float(x); }

static uint16_t combine_half(int op, uint16_t x, uint16_t y, int brain) {
  if (op == ADD) return add_half(x, y, brain);
  float a = half_value(x, brain), b = half_value(y, brain);
  if (a != a) return y;
  if (b != b) return x;
  return op == MIN ? (b < a ? y : x) : (b > a ? y : x);
}

/* Additions of f32 in global memory flush subnormals, in shared memory they do not (PTX ISA 9.0, 9.7.13.5). */
static float flush(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x; }

static uint64_t add_flushed(uint64_t x, uint64_t y) {
  float a, b;
  memcpy(&a, &x, 4);
  memcpy(&b, &y, 4);
  a = flush(flush(a) + flush(b));
  uint32_t bits;
  memcpy(&bits, &a, 4);
  return bits;
}

static uint64_t combine(int op, int type, uint64_t x, uint64_t y, uint64_t z) {
  switch (op) {
    case AND: return x & y;
    case OR: return x | y;
    case XOR: return x ^ y;
    case EXCH: return y;
    case CAS: return x == y ? z : x;
    case INC: return (uint32_t)x >= (uint32_t)y ? 0 : (uint32_t)x + 1;
    case DEC: return (uint32_t)x == 0 || (uint32_t)x > (uint32_t)y ? (uint32_t)y : (uint32_t)x - 1;
    default: break;
  }
  switch (type) {
    case F32: {
      float a, b;
      memcpy(&a, &x, 4);
      memcpy(&b, &y, 4);
      a = op == ADD ? a + b : op == MIN ? __builtin_fminf(a, b) : __builtin_fmaxf(a, b);
      uint32_t bits;
      memcpy(&bits, &a, 4);
      return bits;
    }
    case F64: {
      double a, b;
      memcpy(&a, &x, 8);
      memcpy(&b, &y, 8);
      a = op == ADD ? a + b : op == MIN ? __builtin_fmin(a, b) : __builtin_fmax(a, b);
      memcpy(&x, &a, 8);
      return x;
    }
    case F16: case BF16: return combine_half(op, (uint16_t)x, (uint16_t)y, type == BF16);
    case F16X2: case BF16X2:
      return combine_half(op, (uint16_t)x, (uint16_t)y, type == BF16X2) |
             (uint32_t)combine_half(op, (uint16_t)(x >> 16), (uint16_t)(y >> 16), type == BF16X2) << 16;
    case S32:
      if (op == ADD) return (uint32_t)(x + y);
      return (op == MIN) == ((int32_t)x < (int32_t)y) ? x : y;
    case S64:
      if (op == ADD) return x + y;
      return (op == MIN) == ((int64_t)x < (int64_t)y) ? x : y;
    case U32:
      if (op == ADD) return (uint32_t)(x + y);
      return (op == MIN) == ((uint32_t)x < (uint32_t)y) ? x : y;
    default:
      if (op == ADD) return x + y;
      return (op == MIN) == (x < y) ? x : y;
  }
}

#define STEP(width)                                                                                                    \
  do {                                                                                                                 \
    uint##width##_t *p = (uint##width##_t *)at, old = __atomic_load_n(p, __ATOMIC_RELAXED), fresh;                     \
    do fresh = (uint##width##_t)(flushes ? add_flushed(old, y) : combine(op, type, old, y, z));                                                          \
    while (!__atomic_compare_exchange_n(p, &old, fresh, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));                       \
    was = old;                                                                                                         \
  } while (0)

/* Addresses in w->a, operands in w->d[0] and w->d[1] as 64-bit lanes; the old values come back in w->d[0]. */
KW_API void kw_atomic(kw_warp *w, uint32_t mask, uint32_t site, int space, int op, int type) {
  static const uint8_t sizes[] = {4, 4, 8, 8, 4, 8, 2, 2, 4, 4, 2};
  uint32_t bytes = sizes[type];
  int shape, flushes = op == ADD && type == F32 && space != KW_IN_SHARED;
  uint32_t allowed = mask;
  if (!fits(w, mask, site, bytes, space, &shape)) allowed = kw_admit(w, mask, site, bytes, KW_ATOMIC, space);
  if (space == KW_IN_SHARED && allowed) kw_touch(w, allowed, site, bytes, (const uint32_t *)w->a, NULL, bytes);
  if (space == KW_IN_GENERIC && allowed) kw_touch_generic(w, allowed, site, bytes, NULL, bytes);
  if (space != KW_IN_SHARED && allowed) kw_uninitialised(w, allowed, site, bytes, bytes, space);
  uint64_t held = kw_is_narrow(space) ? 0 : kw_cover_lanes(w, allowed, site, bytes, NULL, bytes);
  for (int l = 0; l < KW_LANES; l++) {
    if (!(mask >> l & 1)) continue;
    uint64_t y = w->d[0][l], z = w->d[1][l], was = KW_POISON16 * 0x0001000100010001ull;
    if (allowed >> l & 1) {
      uint8_t *at = place(w, space, l);
      if (bytes == 2) STEP(16);
      else if (bytes == 4) STEP(32);
      else STEP(64);
    }
    w->d[0][l] = was;
  }
  kw_written(w, held);
}
