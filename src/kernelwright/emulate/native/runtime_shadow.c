/* Judges accesses of shared memory: races and reads of what nobody wrote; here is the slow side of runtime_shadow.h.
 *
 * The rule: a finding only where the CUDA model orders nothing. Atomics do not race with one another; a store of the
 * value that stands there already changes nothing; lanes of one warp that lack a __syncwarp() are an observation, since
 * hardware mostly runs them in step; a read of unwritten memory is one too, since its value may go unused.
 */
#include "runtime_shadow.h"
#include "runtime_block.h"
#include <string.h>

static const kw_site *site_of(const kw_warp *w, uint32_t site) { return &w->block->run->sites[site]; }

static uint32_t site_of_event(const kw_shadow *s, uint32_t event) {
  return s->events[event - s->full] & ~KW_CARRIED;
}

/* ---- reports */

static void describe(const kw_warp *w, kw_finding *f, uint32_t site, uint32_t address, uint32_t bytes) {
  f->bytes = bytes;
  f->access = site_of(w, site)->access;
  f->lane_space = KW_IN_SHARED;
  f->address = address;
  f->offset = address;
  f->has_allocation = 1;
  f->allocation.bytes = w->total_shared;
  f->allocation.kind = KW_SHARED;
  f->allocation.ndim = -1;
}

/* Whether the code of `other` comes before that of `site` on the way from the last barrier; the order in which this
 * emulator happened to run the two warps says nothing. A warp that did both knows; else who writes comes before who reads,
 * and of two writers the one that stands first. */
static int comes_first(const kw_warp *w, uint32_t other, uint32_t site, uint32_t other_warp) {
  const kw_shadow *s = w->shadow;
  uint32_t both[2] = {w->index, other_warp};
  for (int i = 0; i < 2 && other != site; i++) {
    const uint32_t *first = s->first + both[i] * s->n_sites;
    uint32_t since = s->interval[both[i]];
    if (first[other] >= since && first[site] >= since) return first[other] < first[site];
  }
  int reads = site_of(w, site)->access == KW_LOAD, other_reads = site_of(w, other)->access == KW_LOAD;
  return reads != other_reads ? reads : other <= site;
}

/* The copy of that warp (cp.async) into this address that it has not waited for; NULL: there is none. */
static const kw_pending *under_way(const kw_shadow *s, uint32_t warp, uint32_t address) {
  const kw_copies *c = &s->copies[warp];
  for (uint32_t i = 0; i < c->n; i++)
    if (address - c->list[i].address < c->list[i].bytes) return &c->list[i];
  return NULL;
}

static void report_copy(kw_warp *w, uint32_t lane, uint32_t site, uint32_t address, uint32_t thread, uint32_t copy) {
  kw_finding *f = kw_report(w, KW_COPY_UNDER_WAY, (int)site, (int)lane, address, 0);
  if (!f || f->count != 1) return;
  describe(w, f, site, address, (uint32_t)site_of(w, site)->bytes);
  f->other_thread = thread;
  f->other_site = (int32_t)copy;
}

static void report_race(kw_warp *w, uint32_t lane, uint32_t site, uint32_t address, uint32_t entry) {
  const kw_shadow *s = w->shadow;
  uint32_t other = site_of_event(s, entry >> 10), other_warp = entry >> 5 & 31;
  if (s->events[(entry >> 10) - s->full] & KW_CARRIED) {
    report_copy(w, lane, site, address, entry & 1023, other);
    return;
  }
  int tolerated = other_warp == w->index || (site_of(w, site)->strong && site_of(w, other)->strong);
  uint32_t later = site, earlier = other, thread = w->index * KW_LANES + lane, other_thread = entry & 1023;
  if (!comes_first(w, other, site, other_warp)) {
    later = other;
    earlier = site;
    other_thread = thread;
    thread = entry & 1023;
  }
  kw_finding *f = kw_report(w, tolerated ? KW_TOLERATED_RACE : KW_SHARED_RACE, (int)later, 0, address, 0);
  if (!f || f->count != 1) return;
  describe(w, f, later, address, (uint32_t)site_of(w, later)->bytes);
  f->thread = thread;
  f->other_thread = other_thread;
  f->other_site = (int32_t)earlier;
}

static void report_unwritten(kw_warp *w, uint32_t lane, uint32_t site, uint32_t address, uint32_t bytes) {
  int cause = site_of(w, site)->access == KW_ATOMIC ? KW_UNINITIALISED : KW_UNINITIALISED_LOAD;
  kw_finding *f = kw_report(w, cause, (int)site, (int)lane, address, 0);
  if (f && f->count == 1) describe(w, f, site, address, bytes);
}

/* ---- judging */

/* Whether an entry stands against an access of this warp at `site`, all orders considered. */
static int against(kw_warp *w, uint32_t entry, uint32_t mine, uint32_t site) {
  kw_shadow *s = w->shadow;
  if (!KW_AGAINST(entry, mine, s->full << 10, w->clock << 10)) return 0;
  uint32_t event = entry >> 10, other_warp = entry >> 5 & 31;
  const kw_site *one = site_of(w, site), *two = site_of(w, site_of_event(s, event));
  if (one->strong && two->strong && other_warp != w->index && s->fenced)
    for (uint32_t v = 0; v < s->warps; v++) /* it sees what the other did before its fence */
      if (s->fence[v] > s->known[w->index][v]) s->known[w->index][v] = s->fence[v];
  if (other_warp != w->index && event < s->known[w->index][other_warp]) return 0;
  return !(one->strong && two->strong && one->strong + two->strong > 2);
}

void kw_judge_against(kw_warp *w, uint32_t lane, uint32_t site, uint32_t address, uint32_t entry) {
  uint32_t mine = KW_ENTRY(kw_event(w, site), w->index) | lane;
  if (entry >= w->shadow->start << 10 && against(w, entry, mine, site)) report_race(w, lane, site, address, entry);
}

/* What a lane stores, seen as memory will hold it. */
static const uint8_t *stored(const uint8_t *data, uint32_t step, uint32_t lane, uint32_t at) {
  return data + (at / step * KW_LANES + lane) * step + at % step;
}

/* A store that leaves what is there: of a value in memory, or of one that another lane of this instruction stores too. */
static int changes_nothing(const kw_warp *w, uint32_t mask, uint32_t lane, const uint32_t *a, uint32_t at,
                           uint32_t entry, uint32_t event, const uint8_t *data, uint32_t step) {
  const kw_shadow *s = w->shadow;
  uint32_t size = 1u << s->shift, other = entry & 31;
  const uint8_t *mine = stored(data, step, lane, at);
  int together = entry >> 10 == event && mask >> other & 1 && a[other] == a[lane];
  if (together) return !memcmp(mine, stored(data, step, other, at), size);
  return s->writer[(a[lane] + at) >> s->shift] >= s->start << 10 && !memcmp(mine, w->shared + a[lane] + at, size);
}

/* What a line remembers of a warp that read all of it, for one granule; 0 for what is before the last whole barrier. */
static uint32_t whole_read(const kw_warp *w, uint32_t entry, uint32_t g) {
  const kw_shadow *s = w->shadow;
  if (entry >> 10 < s->full) return 0;
  uint32_t n = (uint32_t)site_of(w, site_of_event(s, entry >> 10))->bytes >> s->shift;
  return kw_line_entry(entry, g, n ? n : 1);
}

INLINE void judge(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint32_t *a, const uint8_t *data,
                  uint32_t step, const int enters) {
  kw_shadow *s = w->shadow;
  const kw_site *about = site_of(w, site);
  const uint32_t event = kw_event(w, site), entry = KW_ENTRY(event, w->index), shift = s->shift;
  const uint32_t n = bytes >> shift ? bytes >> shift : 1;
  const int reads = about->access == KW_LOAD, writes = about->access != KW_LOAD;
  uint32_t before = ~0u;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(rest), mine = entry | lane;
    if (reads && enters && a[lane] == before) continue; /* the lane before read the same */
    before = a[lane];
    for (uint32_t k = 0; k < n; k++) {
      uint32_t g = (a[lane] >> shift) + k, bad = 0;
      kw_line *line = s->lines + g / KW_LINE;
      uint32_t seen[5] = {s->writer[g], s->reader[g], s->second[g], whole_read(w, line->reader, g),
                          whole_read(w, line->second, g)};
      if (seen[0] < s->start << 10 && about->access != KW_STORE &&
          about->parts >> (k << shift) / step & 1)
        report_unwritten(w, lane, site, a[lane] + (k << shift), bytes);
      /* Atomics in a row, the common case, are in order among themselves. */
      const uint32_t event_of = seen[0] >> 10;
      const int atomics = about->access == KW_ATOMIC && event_of >= s->full && !s->fenced &&
                          site_of(w, site_of_event(s, event_of))->access == KW_ATOMIC;
      for (int i = atomics; i < (writes ? 5 : 1) && !bad; i++)
        if (__builtin_expect(KW_AGAINST(seen[i], mine, s->full << 10, w->clock << 10), 0))
          bad = against(w, seen[i], mine, site) ? seen[i] : 0;
      /* What order the warp's own accesses have is no help before its copy is done. */
      const kw_pending *copy = s->copies[w->index].n && seen[0] >= s->full << 10 && !((seen[0] ^ mine) & KW_WARP_BITS)
                                   ? under_way(s, w->index, a[lane] + (k << shift)) : NULL;
      if (copy && copy->site != site) report_copy(w, lane, site, a[lane] + (k << shift), w->index * KW_LANES + copy->lane, copy->site);
      else if (bad && !(about->access == KW_STORE && data &&
                   changes_nothing(w, mask, lane, a, k << shift, bad, event, data, step)))
        report_race(w, lane, site, a[lane] + (k << shift), bad);
      if (!enters) continue;
      if (writes) {
        s->writer[g] = mine;
        line->written = event;
      } else {
        if ((seen[1] ^ mine) & KW_WARP_BITS) s->second[g] = seen[1];
        s->reader[g] = mine;
        line->read = event;
      }
    }
  }
}

void kw_judge(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint32_t *a, const uint8_t *data,
              uint32_t step) {
  judge(w, mask, site, bytes, a, data, step, 0);
}

void kw_touch(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint32_t *a, const uint8_t *data,
              uint32_t step) {
  if (!w->shadow->unwatched) judge(w, mask, site, bytes, a, data, step, 1);
}

void kw_touch_generic(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, const uint8_t *data, uint32_t step) {
  uint32_t a[KW_LANES], inside = 0;
  for (uint32_t l = 0; l < KW_LANES; l++) {
    uint64_t past = w->a[l] - (uint64_t)w->shared;
    a[l] = (uint32_t)past;
    inside |= (uint32_t)(past < w->total_shared) << l;
  }
  if (inside & mask && !w->shadow->unwatched) judge(w, inside & mask, site, bytes, a, data, step, 1);
}

/* ---- memory that holds poison */

/* Loads and atomics of global and local memory are judged by value: these lanes got poison, or part of it. */
void kw_uninitialised(kw_warp *w, uint32_t mask, uint32_t site, uint32_t bytes, uint32_t step, int space) {
  const kw_site *about = site_of(w, site);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    const uint8_t *start = place(w, space, lane);
    uint32_t bad = 0, at = 0;
    for (; at < bytes && !bad; at += step) {
      uint32_t word;
      memcpy(&word, (const uint8_t *)((uintptr_t)(start + at) & ~(uintptr_t)3), sizeof word);
      bad = about->parts >> at / step & 1 && word == KW_POISON16 * 0x10001u;
    }
    if (!bad) continue;
    uint64_t address = space == KW_IN_LOCAL ? ((const uint32_t *)w->a)[lane] : w->a[lane];
    if (space == KW_IN_GENERIC && address - (uint64_t)w->shared < w->total_shared) continue; /* judged by its shadow */
    int cause = about->access == KW_ATOMIC ? KW_UNINITIALISED : KW_UNINITIALISED_LOAD;
    kw_allocation owner = {.kind = KW_LOCAL, .bytes = w->block->run->local_bytes, .ndim = -1};
    if (space != KW_IN_LOCAL && (kw_find(address, &owner) != 1 || owner.kind != KW_GLOBAL)) continue;
    kw_finding *f = kw_report(w, cause, (int)site, lane, address, 0);
    if (!f || f->count != 1) continue;
    f->bytes = bytes;
    f->access = about->access;
    f->lane_space = space;
    f->has_allocation = 1;
    f->allocation = owner;
    f->offset = (int64_t)(address - owner.base);
  }
}
