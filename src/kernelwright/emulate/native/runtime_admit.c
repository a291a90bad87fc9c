/* The slow path of every access: which lanes may go on, and what is wrong with the others.
 *
 * The rule: exact bounds. An address must lie in one allocation, and where the code shows which kernel parameter it is
 * derived from, in that parameter's allocation: an index that runs from one tensor into the next is caught too.
 */
#include "runtime_global.h"
#include <stdio.h>
#include <string.h>

static int usable(int kind, int access) {
  if (kind == KW_CONST) return access == KW_LOAD;
  return kind == KW_GLOBAL || kind == KW_PINNED || kind == KW_MANAGED;
}

static uint64_t parameter_pointer(const kw_warp *w, const kw_site *site) {
  uint64_t pointer = 0;
  if (site->variable >= 0) return w->symbols[site->variable];
  if (site->parameter >= 0) memcpy(&pointer, w->params + site->parameter, sizeof pointer);
  return pointer;
}

static int cause_of_kind(int kind) {
  return kind == KW_FREED ? KW_USE_AFTER_FREE : kind == KW_HOST ? KW_HOST_MEMORY
       : kind == KW_BINDING_TEMPORARY ? KW_RAW_POINTER : KW_OUT_OF_BOUNDS;
}

/* Whether an address that is in no allocation is not just beside one either (within its red zones). */
static int is_far(uint64_t address, kw_allocation *nearest) {
  if (kw_find(address, nearest) == 0) return 1;
  return address < nearest->base ? nearest->base - address > 512 : address - nearest->base - nearest->bytes > 512;
}

/* What a bad global address is, in the order of what is known for certain. */
static void report_global(kw_warp *w, uint32_t site_number, int lane, uint64_t address, uint32_t bytes, int access) {
  const kw_site *site = &w->block->run->sites[site_number];
  uint64_t pointer = parameter_pointer(w, site);
  kw_allocation meant;
  int cause = KW_OUT_OF_BOUNDS, known = 0;
  const char *message = "";
  int hit = kw_find(address, &meant);
  if (pointer && kw_find(pointer, &meant) == 1) {
    cause = cause_of_kind(meant.kind);
    known = 1;
  } else if (site->parameter >= 0 && pointer == 0) {
    message = "the kernel's pointer argument is null";
  } else if (pointer && is_far(pointer, &meant) && kw_is_mapped(pointer)) {
    cause = KW_HOST_MEMORY;
    message = "the kernel's pointer argument is host memory that no tensor or allocation of the device owns";
  } else if (hit == 1 || (hit == 2 && kw_find(address, &meant) == 2)) {
    hit = kw_find(address, &meant);
    known = 1;
    cause = hit == 1 || meant.kind != KW_FREED ? cause_of_kind(meant.kind) : KW_OUT_OF_BOUNDS;
    if (hit == 1 && meant.kind == KW_CONST) message = "constant memory cannot be written";
  } else if (address < 65536) {
    message = "a null pointer plus a small offset";
  } else if (kw_is_mapped(pointer ? pointer : address)) {
    cause = KW_HOST_MEMORY;
    message = "the address is host memory that no tensor or allocation of the device owns";
  }
  kw_finding *f = kw_report(w, cause, (int)site_number, lane, address, KW_ILLEGAL_ADDRESS);
  if (!f || f->count != 1) return;
  f->bytes = bytes;
  f->access = access;
  f->lane_space = site->space;
  f->has_allocation = known;
  if (known) {
    f->allocation = meant;
    f->offset = (int64_t)(address - meant.base);
  }
  snprintf(f->message, sizeof f->message, "%s", message);
}

static void report_window(kw_warp *w, int cause, uint32_t site, int lane, uint64_t address, int64_t offset, int kind,
                          uint64_t size, uint32_t bytes, int access, int space) {
  int error = cause == KW_MISALIGNED_ACCESS ? KW_MISALIGNED : KW_ILLEGAL_ADDRESS;
  kw_finding *f = kw_report(w, cause, (int)site, lane, address, error);
  if (!f || f->count != 1) return;
  f->bytes = bytes;
  f->access = access;
  f->lane_space = space;
  f->offset = offset;
  f->has_allocation = 1;
  f->allocation.base = address - (uint64_t)offset;
  f->allocation.bytes = size;
  f->allocation.kind = kind;
  f->allocation.ndim = -1;
}

static void report_misaligned(kw_warp *w, uint32_t site, int lane, uint64_t address, uint32_t bytes, int access) {
  kw_finding *f = kw_report(w, KW_MISALIGNED_ACCESS, (int)site, lane, address, KW_MISALIGNED);
  if (!f || f->count != 1) return;
  f->bytes = bytes;
  f->access = access;
  f->lane_space = w->block->run->sites[site].space;
  if (kw_find(address, &f->allocation) == 1) {
    f->has_allocation = 1;
    f->offset = (int64_t)(address - f->allocation.base);
  }
}

static uint32_t admit_narrow(kw_warp *w, uint32_t mask, uint32_t number, uint32_t bytes, int access, int space) {
  const kw_site *site = &w->block->run->sites[number];
  const uint32_t *a = (const uint32_t *)w->a;
  uint64_t low = 0, high = space == KW_IN_SHARED ? w->total_shared : w->block->run->local_bytes;
  if (space == KW_IN_SHARED && site->low >= 0) {
    low = (uint64_t)site->low;
    if (site->high >= 0) high = (uint64_t)site->high;
  }
  uint32_t allowed = 0;
  for (int l = 0; l < KW_LANES; l++) {
    if (!(mask >> l & 1)) continue;
    int inside = a[l] >= low && a[l] + (uint64_t)bytes <= high;
    int cause = space == KW_IN_LOCAL ? KW_LOCAL_OVERRUN : KW_OUT_OF_BOUNDS;
    if (inside && !(a[l] & (bytes - 1))) {
      allowed |= 1u << l;
      continue;
    }
    if (inside) cause = KW_MISALIGNED_ACCESS;
    /* A small negative index wraps in the 32-bit window: show it as the negative number it was. */
    int64_t offset = (int64_t)(int32_t)a[l] - (int64_t)low;
    report_window(w, cause, number, l, a[l], offset, space == KW_IN_SHARED ? KW_SHARED : KW_LOCAL, high - low, bytes, access,
                  space);
  }
  return allowed;
}

/* 1 admitted, 0 reported, -1 not in a window of this block. */
static int admit_in_windows(kw_warp *w, uint32_t site, int lane, uint64_t a, uint32_t bytes, int access) {
  uint64_t past = a - (uint64_t)w->shared;
  if (past < w->total_shared) {
    if (past + bytes <= w->total_shared) return 1;
    report_window(w, KW_OUT_OF_BOUNDS, site, lane, a, (int64_t)past, KW_SHARED, w->total_shared, bytes, access, KW_IN_SHARED);
    return 0;
  }
  past = a - (uint64_t)w->local;
  if (past < KW_LANES * w->local_stride) {
    int64_t own = (int64_t)(past - (uint64_t)lane * w->local_stride);
    uint64_t size = w->block->run->local_bytes;
    if (own >= 0 && (uint64_t)own + bytes <= size) return 1;
    report_window(w, KW_LOCAL_OVERRUN, site, lane, a, own, KW_LOCAL, size, bytes, access, KW_IN_LOCAL);
    return 0;
  }
  past = a - (uint64_t)w->params;
  return access == KW_LOAD && past + bytes <= w->block->run->parameter_bytes && past <= past + bytes ? 1 : -1;
}

/* The range that a good access may go on with: the view that the kernel's pointer was handed out for while it stays there,
 * the whole allocation once it has left it. */
static kw_range range_of(kw_warp *w, uint32_t number, int lane, uint64_t a, uint32_t bytes, uint64_t base, uint64_t size,
                         int access) {
  const kw_site *site = &w->block->run->sites[number];
  uint64_t low, high;
  kw_range range = {base, size - bytes, kw_cover_at(w->block->run, base)};
  if (site->parameter < 0 || !kw_view_of(parameter_pointer(w, site), &low, &high) || low < base || high > base + size)
    return range;
  if (a >= low && a + bytes <= high) {
    range.lo = low;
    range.last = high - low - bytes;
    return range;
  }
  kw_finding *f = kw_report(w, KW_OUTSIDE_VIEW, (int)number, lane, a, 0);
  if (!f || f->count != 1) return range;
  f->bytes = bytes;
  f->access = access;
  f->lane_space = site->space;
  f->has_allocation = kw_find(a, &f->allocation) == 1;
  snprintf(f->message, sizeof f->message, "%s has %llu bytes, of which the tensor that was passed is %llu, from byte %llu on",
           f->allocation.name[0] ? f->allocation.name : "its memory", (unsigned long long)size,
           (unsigned long long)(high - low), (unsigned long long)(low - base));
  snprintf(f->allocation.name, sizeof f->allocation.name, "the view that was passed");
  f->allocation.base = low;
  f->allocation.bytes = high - low;
  f->allocation.ndim = -1;
  f->offset = (int64_t)(a - low);
  return range;
}

uint32_t kw_admit(kw_warp *w, uint32_t mask, uint32_t number, uint32_t bytes, int access, int space) {
  if (kw_is_narrow(space)) return admit_narrow(w, mask, number, bytes, access, space);
  const kw_site *site = &w->block->run->sites[number];
  kw_range *range = &w->ranges[number];
  uint32_t allowed = 0;
  for (int l = 0; l < KW_LANES; l++) {
    if (!(mask >> l & 1)) continue;
    uint64_t a = w->a[l], base, size, own, own_size;
    int kind, own_kind, in_window = -1;
    int good = a - range->lo <= range->last;
    if (!good) {
      in_window = admit_in_windows(w, number, l, a, bytes, access);
      if (in_window == 0) continue;
      good = in_window == 1;
    }
    if (!good && kw_range_of(a, &base, &size, &kind) && a - base + bytes <= size && usable(kind, access)) {
      uint64_t pointer = parameter_pointer(w, site);
      good = !pointer || !kw_range_of(pointer, &own, &own_size, &own_kind) || own == base;
      if (good) *range = range_of(w, number, l, a, bytes, base, size, access);
    }
    if (!good) report_global(w, number, l, a, bytes, access);
    else if (a & (bytes - 1)) report_misaligned(w, number, l, a, bytes, access);
    else allowed |= 1u << l;
  }
  return allowed;
}
