// What this device can do at best with memory: read, write, copy, L2, and an empty launch.
//
// Each figure is the best of a few kernels, because no one way of loading is the fastest on every GPU. Data is consumed
// in one word of each piece only, so that arithmetic never binds. Times come from events around `repeats` launches.
// Built by ceilings.py with: nvcc -O3 -shared -Xcompiler -fPIC -arch=sm_XX

#include <cstdint>
#include <cuda_runtime.h>

namespace {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KW_BULK 1
#endif

// Memory to shared memory through the bulk copy engine: one thread fills a ring of STAGES pieces, one empties it.
template <int BYTES, int STAGES>
__global__ void __launch_bounds__(64) read_ring(const char* __restrict__ data, int64_t pieces, float* out) {
#ifdef KW_BULK
    extern __shared__ __align__(1024) unsigned char ring[];
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[i])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&empty[i])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    auto wait = [](uint64_t* barrier, uint32_t phase) {
        asm volatile(
            "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
            "@!done bra again;\n}" ::"r"(shared_address(barrier)), "r"(phase) : "memory");
    };
    int stage = 0;
    uint32_t phase = 0;
    if (threadIdx.x == 32) {
        uint64_t policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
            wait(&empty[stage], phase ^ 1);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full[stage])),
                         "r"(BYTES) : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(ring + stage * BYTES)),
                "l"(data + piece * BYTES), "r"(BYTES), "r"(shared_address(&full[stage])), "l"(policy) : "memory");
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    } else if (threadIdx.x == 0) {
        float sum = 0.f;
        for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
            wait(&full[stage], phase);
            sum += *reinterpret_cast<volatile float*>(ring + stage * BYTES);
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[stage])) : "memory");
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        atomicAdd(out, sum);
    }
#endif
}

__device__ __forceinline__ float4 load(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

// DEPTH independent 16-byte loads a thread before the first use.
template <int DEPTH>
__global__ void __launch_bounds__(512) read_loads(const float4* __restrict__ data, int64_t count, float* out) {
    float sum = 0.f;
    const int64_t step = int64_t(gridDim.x) * blockDim.x * DEPTH;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x * DEPTH + threadIdx.x; i < count; i += step) {
        float4 v[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            int64_t at = i + d * blockDim.x;
            v[d] = at < count ? load(data + at) : make_float4(0.f, 0.f, 0.f, 0.f);
        }
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) sum += (v[d].x + v[d].y) + (v[d].z + v[d].w);
    }
    if (sum == 12345.678f) atomicAdd(out, sum);
}

// Every block reads a small buffer `passes` times, each from another place: what the L2 delivers, L1 left out.
__global__ void __launch_bounds__(1024) read_l2(const float4* __restrict__ data, int count, int passes, float* out) {
    float sum = 0.f;
    const int width = blockDim.x * 4;
    int at = (int64_t(blockIdx.x) * width * 7) % count;
    for (int pass = 0; pass < passes; ++pass) {
#pragma unroll
        for (int d = 0; d < 4; ++d) {
            int64_t i = at + d * blockDim.x + threadIdx.x;
            float4 v = __ldcg(data + (i < count ? i : i - count));
            sum += (v.x + v.y) + (v.z + v.w);
        }
        at += width;
        if (at >= count) at -= count;
    }
    if (sum == 12345.678f) atomicAdd(out, sum);
}

template <bool STREAMING>
__global__ void __launch_bounds__(512) write_stores(float4* __restrict__ data, int64_t count, float value) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    const float4 v = make_float4(value, value + 1.f, value + 2.f, value + 3.f);
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        if (STREAMING) __stcs(data + i, v);
        else data[i] = v;
    }
}

template <int DEPTH>
__global__ void __launch_bounds__(512) copy(const float4* __restrict__ from, float4* __restrict__ to, int64_t count) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x * DEPTH;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x * DEPTH + threadIdx.x; i < count; i += step) {
        float4 v[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; ++d)
            if (i + d * blockDim.x < count) v[d] = load(from + i + d * blockDim.x);
#pragma unroll
        for (int d = 0; d < DEPTH; ++d)
            if (i + d * blockDim.x < count) __stcs(to + i + d * blockDim.x, v[d]);
    }
}

__global__ void nothing() {}

struct Device {
    int blocks_of_sm = 0, capability = 0;
    size_t shared = 0;
    Device() {
        cudaDeviceProp p;
        cudaGetDeviceProperties(&p, 0);
        blocks_of_sm = p.multiProcessorCount;
        capability = p.major * 10 + p.minor;
        shared = p.sharedMemPerBlockOptin;
    }
};

template <int BYTES, int STAGES>
void launch_ring(const Device& device, const void* data, int64_t bytes, float* out, int per_sm) {
    cudaFuncSetAttribute(read_ring<BYTES, STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES * STAGES);
    read_ring<BYTES, STAGES><<<device.blocks_of_sm * per_sm, 64, BYTES * STAGES>>>(
        static_cast<const char*>(data), bytes / BYTES, out);
}

}  // namespace

// Whether this device has what variants 1 and 2 need: the bulk copy engine, and shared memory for their rings.
extern "C" int kw_has_bulk() {
    const Device device;
    return device.capability >= 90 && device.shared >= 12 * 16384 + 1024;
}

// Variants by number; ceilings.py names them. Returns a cudaError_t.
extern "C" int kw_ceiling(int variant, void* a, void* b, int64_t bytes, int passes, float* out) {
    static const Device device;
    const int64_t count = bytes / 16;
    const int sms = device.blocks_of_sm;
    float4 *x = static_cast<float4*>(a), *y = static_cast<float4*>(b);
    switch (variant) {
        case 0: nothing<<<1, 32>>>(); break;
        case 1: launch_ring<16384, 12>(device, a, bytes, out, 1); break;
        case 2: launch_ring<4096, 24>(device, a, bytes, out, 2); break;
        case 3: read_loads<4><<<sms * 4, 512>>>(x, count, out); break;
        case 4: read_loads<8><<<sms * 4, 512>>>(x, count, out); break;
        case 5: write_stores<false><<<sms * 4, 512>>>(x, count, 1.25f); break;
        case 6: write_stores<true><<<sms * 8, 512>>>(x, count, 1.25f); break;
        case 7: copy<4><<<sms * 4, 512>>>(x, y, count); break;
        case 8: copy<8><<<sms * 4, 512>>>(x, y, count); break;
        case 9: read_l2<<<sms * 2, 1024>>>(x, int(count), passes, out); break;
        default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}
