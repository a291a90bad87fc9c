/* A block's inner parts, for the scheduler and the barriers. */
#ifndef KW_RUNTIME_BLOCK_H
#define KW_RUNTIME_BLOCK_H
#include "runtime_warp.h"

static inline kw_warp *kw_warp_of(const kw_block *b, uint32_t i) {
  return (kw_warp *)(b->memory + (uint64_t)i * (KW_REGISTERS_AT + b->run->register_bytes));
}
kw_block *kw_new_block(kw_run *, kw_counts *);
void kw_free_block(kw_block *);
void kw_start_block(kw_block *, uint64_t index);
int kw_force_sync(kw_warp *);
int kw_complete_barriers(kw_block *);
void kw_resolve_stuck(kw_block *);
void kw_start_mbarriers(kw_block *);
void kw_free_mbarriers(kw_block *);
void kw_forget_mbarrier_orders(kw_block *);
int kw_mbarriers_stuck(kw_block *);
#endif
