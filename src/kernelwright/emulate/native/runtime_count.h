/* What a counted launch keeps: cells that generated code and the functions here add to, and the memory it touched.
 *
 * Why: one worker thread's counts are its own, so counting takes no lock and repeats exactly: cells are sums, memory is a
 * union. The rule: nothing here changes what a kernel computes; a launch that is not counted has no kw_counts at all.
 */
#ifndef KW_RUNTIME_COUNT_H
#define KW_RUNTIME_COUNT_H
#include "runtime_warp.h"

/* The cells of one access, in the order of codegen/counting.py. */
enum { KW_GLOBAL_REQUESTS, KW_GLOBAL_SECTORS, KW_GLOBAL_IDEAL, KW_SHARED_REQUESTS, KW_SHARED_WAVEFRONTS, KW_SHARED_IDEAL,
       KW_LOCAL_REQUESTS, KW_LOCAL_SECTORS, KW_GLOBAL_DISTINCT, KW_SHARED_FILLED, KW_ACCESS_CELLS };

/* A worker's; NULL where the launch is not counted. */
kw_counts *kw_new_counts(const kw_run *);
uint64_t *kw_cells_of(kw_counts *);
/* Adds a worker's counts to the launch's and frees them; the caller holds the launch's lock. */
void kw_merge_counts(kw_run *, kw_counts *);
/* The last merge is done: what was touched becomes figures. */
void kw_finish_counts(kw_run *);
#endif
