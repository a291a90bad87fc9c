#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void groups(int* out, unsigned* total) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int v = threadIdx.x;
    for (int o = 4; o; o /= 2) v += tile.shfl_down(v, o);
    v = tile.shfl(v, 0);
    if (threadIdx.x % 3 == 0) {
        auto active = cg::coalesced_threads();
        if (active.thread_rank() == 0) atomicAdd(total, active.size());
    }
    block.sync();
    out[threadIdx.x] = v + __reduce_add_sync(~0u, 1) + __popc(__match_any_sync(~0u, threadIdx.x & 3));
}
