/* What lanes of a warp exchange: shuffle, vote, match, reduce.
 *
 * Formulas: PTX ISA 9.0, 9.7.9.6 shfl.sync, 9.7.13.7 vote.sync, 9.7.13.8 match.sync, 9.7.13.10 redux.sync. Operands lie in the
 * warp's rows d[0..3] as 32-bit lanes: values, members, b, c. A member list that leaves out the lane itself, or names a
 * source lane that does not run, is undefined in PTX: observed, not stopped.
 */
#include "runtime_shadow.h"

#define EACH(l, mask) for (uint32_t rest_ = (mask), l; rest_ && (l = (uint32_t)__builtin_ctz(rest_), 1); rest_ &= rest_ - 1)

static void observe(kw_warp *w, uint32_t site, uint32_t lane) {
  kw_finding *f = kw_report(w, KW_WARP_MASK, (int)site, (int)lane, 0, 0);
  if (f) f->access = KW_AT_SYNC;
}

static const uint32_t *members_of(kw_warp *w, uint32_t site) {
  kw_lanes_met(w);
  const uint32_t *members = (const uint32_t *)w->d[1];
  uint32_t outside = 0;
  for (uint32_t l = 0; l < KW_LANES; l++) outside |= (uint32_t)!(members[l] >> l & 1) << l;
  outside &= w->mask;
  if (outside) observe(w, site, (uint32_t)__builtin_ctz(outside));
  return members;
}

enum { UP, DOWN, BUTTERFLY, INDEX };

static inline __attribute__((always_inline)) uint32_t shuffle(kw_warp *w, const int mode, uint32_t site) {
  const uint32_t *b = (const uint32_t *)w->d[2], *c = (const uint32_t *)w->d[3];
  uint32_t *value = (uint32_t *)w->d[0], out[KW_LANES], inside = 0, sources = 0;
  for (uint32_t l = 0; l < KW_LANES; l++) {
    uint32_t segment = c[l] >> 8 & 31, clamp = c[l] & 31, by = b[l] & 31;
    uint32_t most = (l & segment) | (clamp & ~segment), least = l & segment;
    int32_t j = mode == UP ? (int32_t)l - (int32_t)by : mode == DOWN ? (int32_t)(l + by)
              : mode == BUTTERFLY ? (int32_t)(l ^ by) : (int32_t)(least | (by & ~segment & 31));
    uint32_t good = mode == UP ? j >= (int32_t)most : j <= (int32_t)most;
    uint32_t from = good ? (uint32_t)j & 31 : l;
    inside |= good << l;
    sources |= w->mask >> l & 1 ? 1u << from : 0;
    out[l] = value[from];
  }
  for (int l = 0; l < KW_LANES; l++) value[l] = out[l];
  if (__builtin_expect(sources & ~w->mask, 0)) observe(w, site, (uint32_t)__builtin_ctz(w->mask));
  return inside;
}

KW_API uint32_t kw_shfl_up(kw_warp *w, uint32_t site) { members_of(w, site); return shuffle(w, UP, site); }
KW_API uint32_t kw_shfl_down(kw_warp *w, uint32_t site) { members_of(w, site); return shuffle(w, DOWN, site); }
KW_API uint32_t kw_shfl_bfly(kw_warp *w, uint32_t site) { members_of(w, site); return shuffle(w, BUTTERFLY, site); }
KW_API uint32_t kw_shfl_idx(kw_warp *w, uint32_t site) { members_of(w, site); return shuffle(w, INDEX, site); }

/* op: 0 all, 1 any, 2 uni, 3 ballot. */
KW_API void kw_vote(kw_warp *w, uint32_t site, int op, uint32_t predicate) {
  const uint32_t *members = members_of(w, site);
  uint32_t *out = (uint32_t *)w->d[0];
  for (int l = 0; l < KW_LANES; l++) {
    uint32_t group = members[l] & w->mask, yes = predicate & group;
    out[l] = op == 0 ? yes == group : op == 1 ? yes != 0 : op == 2 ? yes == group || !yes : yes;
  }
}

/* Values as 64-bit lanes in d[0]; masks as 32-bit lanes in d[2]; returns the lanes whose whole group agrees. */
KW_API uint32_t kw_match(kw_warp *w, uint32_t site, int all) {
  const uint32_t *members = members_of(w, site);
  uint32_t *out = (uint32_t *)w->d[2], agree = 0;
  EACH(l, w->mask) {
    uint32_t group = members[l] & w->mask, same = 0;
    EACH(k, group) same |= (uint32_t)(w->d[0][k] == w->d[0][l]) << k;
    if (same == group) agree |= 1u << l;
    out[l] = !all || same == group ? same : 0;
  }
  return agree;
}

/* op: 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor. */
KW_API void kw_redux(kw_warp *w, uint32_t site, int op, int is_signed) {
  const uint32_t *members = members_of(w, site);
  uint32_t *value = (uint32_t *)w->d[0], out[KW_LANES];
  EACH(l, w->mask) {
    uint32_t group = members[l] & w->mask, total = 0, first = 1;
    EACH(k, group) {
      uint32_t v = value[k];
      int less = is_signed ? (int32_t)v < (int32_t)total : v < total;
      total = first ? v : op == 0 ? total + v : op == 1 ? (less ? v : total) : op == 2 ? (less ? total : v)
            : op == 3 ? total & v : op == 4 ? total | v : total ^ v;
      first = 0;
    }
    out[l] = total;
  }
  EACH(m, w->mask) value[m] = out[m];
}
