"""Row softmax with its prologue in one pass: softmax(activation(z + bias) * scale + mask), each row read once,
written once.

PyTorch runs bias, GELU, scale, mask and softmax as separate kernels, and its softmax reads a long row two or three
times. Here a row stays in registers from its only read to its only write:

  warp      N up to 1024: a warp a row, eight rows a block, no barrier at all.
  block     N up to 32768: a block a row, 16 or 32 values a thread, two block reductions (highest value, then sum).
  cluster   N up to 262144 on Hopper: the row lies in the registers of 2 to 8 blocks, which exchange one (highest,
            sum) pair through distributed shared memory.
  online    anything else: one pass keeps a running (highest, sum) pair, a second recomputes and writes (two reads,
            one write).

Arithmetic is float32 whatever the dtype; exp is CUDA's expf. GELU is PyTorch's own formula (erf, or tanh). Special
values act as in PyTorch: NaN or +Inf in a row make the row NaN, -Inf counts nothing, a row of -Inf only is NaN.
Deterministic: sums have a fixed order.

Limits: float32, float16, bfloat16; softmax over the last dimension; z [M, N] with any row stride >= N; bias [N];
mask [N] or [M, N], added where it is floating point, and where it is bool, False means left out. N up to 2^31 - 1.
Forward only.

Measured: docs/gallery.md.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
// ---- begin softmax: shared with linear_gelu_softmax.py
// -----------------------------------------------------------------
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace softmax {

__device__ __forceinline__ float as_float(float v) { return v; }
__device__ __forceinline__ float as_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float as_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void rounded(float v, float& to) { to = v; }
__device__ __forceinline__ void rounded(float v, __half& to) { to = __float2half_rn(v); }
__device__ __forceinline__ void rounded(float v, __nv_bfloat16& to) { to = __float2bfloat16_rn(v); }

// V consecutive elements that one instruction moves: 16 bytes, or one element where rows are not aligned to 16 bytes.
template <typename T, int V>
struct alignas(sizeof(T) * V) Piece {
    T value[V];
};
template <typename T, int V>
__device__ __forceinline__ void load(const T* p, float (&f)[V]) {
    Piece<T, V> piece;
    if constexpr (sizeof(T) * V == 16) *reinterpret_cast<uint4*>(&piece) = *reinterpret_cast<const uint4*>(p);
    else piece.value[0] = *p;
#pragma unroll
    for (int v = 0; v < V; ++v) f[v] = as_float(piece.value[v]);
}
template <typename T, int V>
__device__ __forceinline__ void store(T* p, const float (&f)[V]) {
    Piece<T, V> piece;
#pragma unroll
    for (int v = 0; v < V; ++v) rounded(f[v], piece.value[v]);
    if constexpr (sizeof(T) * V == 16) __stcs(reinterpret_cast<uint4*>(p), *reinterpret_cast<uint4*>(&piece));
    else *p = piece.value[0];
}

enum Activation { NONE, GELU_ERF, GELU_TANH };
__device__ __forceinline__ float gelu_erf(float v) { return v * 0.5f * (1.f + erff(v * 0.70710678118654752f)); }
// 0.5 v (1 + tanh(u)) is v / (1 + exp(-2 u)), without the cancellation and the branches of tanhf.
__device__ __forceinline__ float gelu_tanh(float v) {
    return v / (1.f + expf(-1.5957691216057308f * (v + 0.044715f * v * v * v)));
}

// What happens to an element before the softmax. A null pointer means that the step is left out.
template <typename T>
struct Prologue {
    const T* bias;
    const void* mask;
    int64_t mask_stride;  // 0: one mask for all rows
    int mask_is_bool;
    float scale;
    int activation;

    // Step by step over all of a thread's pieces: the branches stay few. `column` is the first piece's, `step` leads
    // to the next.
    template <int V, int PIECES>
    __device__ __forceinline__ void apply(float (&f)[PIECES][V], int64_t row, int column, int step, int end) const {
        auto biased = [&](int p) {
            float b[V] = {};
            if ((V == 1 || bias) && column + p * step < end) load<T, V>(bias + column + p * step, b);
#pragma unroll
            for (int v = 0; v < V; ++v) f[p][v] += b[v];
        };
        if ((V == 1 || activation == NONE) && bias) {
#pragma unroll
            for (int p = 0; p < PIECES; ++p) biased(p);
        }
        if (activation == GELU_ERF) {
#pragma unroll
            for (int i = 0; i < PIECES * V; ++i) {
                if (V > 1 && i % V == 0) biased(i / V);
                f[i / V][i % V] = gelu_erf(f[i / V][i % V]);
            }
        } else if (activation == GELU_TANH) {
#pragma unroll
            for (int i = 0; i < PIECES * V; ++i) {
                if (V > 1 && i % V == 0) biased(i / V);
                f[i / V][i % V] = gelu_tanh(f[i / V][i % V]);
            }
        }
        if (scale != 1.f) {
#pragma unroll
            for (int i = 0; i < PIECES * V; ++i) f[i / V][i % V] *= scale;
        }
        if (mask && mask_is_bool) {
            const unsigned char* keep = static_cast<const unsigned char*>(mask) + row * mask_stride + column;
#pragma unroll
            for (int i = 0; i < PIECES * V; ++i)
                if (column + i / V * step < end && !keep[i / V * step + i % V]) f[i / V][i % V] = -INFINITY;
        } else if (mask) {
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
                float add[V] = {};
                if (column + p * step < end)
                    load<T, V>(static_cast<const T*>(mask) + row * mask_stride + column + p * step, add);
#pragma unroll
                for (int v = 0; v < V; ++v) f[p][v] += add[v];
            }
        }
    }
};

template <typename T>
struct Rows {
    const T* z;
    int64_t stride;
    T* y;
    int64_t M;
    int N;
    Prologue<T> prologue;
};

struct Highest {
    static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
    static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
template <typename Op>
__device__ __forceinline__ float over_warp(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
}
// The result in every thread. `shared` must not be in use by an earlier reduction.
template <typename Op, int THREADS>
__device__ __forceinline__ float over_block(float v, float* shared, float identity) {
    v = over_warp<Op>(v);
    if constexpr (THREADS == 32) return v;
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < THREADS / 32 ? shared[threadIdx.x % 32] : identity;
    return over_warp<Op>(v);
}

// Pieces `lane`, `lane + LANES`, ... of the columns [begin, end) of a row, after the prologue; columns past the end
// count nothing.
template <typename T, int V, int PIECES, int LANES>
__device__ __forceinline__ float read_row(const Rows<T>& rows, int64_t row, int begin, int end, int lane,
                                          float (&f)[PIECES][V]) {
    const T* z = rows.z + row * rows.stride;
    const int column = begin + lane * V, step = LANES * V;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
#pragma unroll
        for (int v = 0; v < V; ++v) f[p][v] = 0.f;
        if (column + p * step < end) load<T, V>(z + column + p * step, f[p]);
    }
    rows.prologue.apply(f, row, column, step, end);
    float highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < PIECES * V; ++i) {
        if (column + i / V * step >= end) f[i / V][i % V] = -INFINITY;
        highest = fmaxf(highest, f[i / V][i % V]);
    }
    return highest;
}
template <int V, int PIECES>
__device__ __forceinline__ float exponentials(float (&f)[PIECES][V], float highest) {
    float total = 0.f;
#pragma unroll
    for (int p = 0; p < PIECES; ++p)
#pragma unroll
        for (int v = 0; v < V; ++v) total += f[p][v] = expf(f[p][v] - highest);
    return total;
}
template <typename T, int V, int PIECES, int LANES>
__device__ __forceinline__ void write_row(const Rows<T>& rows, int64_t row, int begin, int end, int lane,
                                          float (&f)[PIECES][V], float factor) {
    T* y = rows.y + row * rows.N;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
        const int column = begin + (p * LANES + lane) * V;
#pragma unroll
        for (int v = 0; v < V; ++v) f[p][v] *= factor;
        if (column < end) store<T, V>(y + column, f[p]);
    }
}

template <typename T, int V, int PIECES>
__global__ void __launch_bounds__(256) warp_kernel(const Rows<T> rows) {
    const int64_t row = blockIdx.x * int64_t(8) + threadIdx.x / 32;
    if (row >= rows.M) return;
    const int lane = threadIdx.x % 32;
    float f[PIECES][V];
    const float highest = over_warp<Highest>(read_row<T, V, PIECES, 32>(rows, row, 0, rows.N, lane, f));
    const float total = over_warp<Sum>(exponentials(f, highest));
    write_row<T, V, PIECES, 32>(rows, row, 0, rows.N, lane, f, 1.f / total);
}

template <typename T, int V, int PIECES, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) block_kernel(const Rows<T> rows) {
    __shared__ float shared[2][32];
    float f[PIECES][V];
    float highest = read_row<T, V, PIECES, THREADS>(rows, blockIdx.x, 0, rows.N, threadIdx.x, f);
    highest = over_block<Highest, THREADS>(highest, shared[0], -INFINITY);
    const float total = over_block<Sum, THREADS>(exponentials(f, highest), shared[1], 0.f);
    write_row<T, V, PIECES, THREADS>(rows, blockIdx.x, 0, rows.N, threadIdx.x, f, 1.f / total);
}

// One pass for the pair (highest, sum of exp(v - highest)), a second for the result.
template <typename T, int V>
__global__ void __launch_bounds__(1024, 1) online_kernel(const Rows<T> rows) {
    constexpr int THREADS = 1024, PIECES = V == 1 ? 8 : 16 / V;
    __shared__ float shared[2][32];
    const int64_t row = blockIdx.x;
    float highest = -INFINITY, total = 0.f;
    for (int64_t begin = 0; begin < rows.N; begin += THREADS * PIECES * V) {
        float f[PIECES][V];
        const float now =
            fmaxf(highest, read_row<T, V, PIECES, THREADS>(rows, row, int(begin), rows.N, threadIdx.x, f));
        const float safe = now == -INFINITY ? 0.f : now;  // -Inf - -Inf would be NaN
        total = total * expf(highest - safe) + exponentials(f, safe);
        highest = now;
    }
    const float all = over_block<Highest, THREADS>(highest, shared[0], -INFINITY);
    total = over_block<Sum, THREADS>(highest == -INFINITY ? total : total * expf(highest - all), shared[1], 0.f);
    const float factor = 1.f / total;
    for (int64_t begin = 0; begin < rows.N; begin += THREADS * PIECES * V) {
        float f[PIECES][V];
        read_row<T, V, PIECES, THREADS>(rows, row, int(begin), rows.N, threadIdx.x, f);
        exponentials(f, all);
        write_row<T, V, PIECES, THREADS>(rows, row, int(begin), rows.N, threadIdx.x, f, factor);
    }
}

#ifdef GALLERY_HOPPER
// The row lies in the registers of a cluster's blocks; each tells the others its (highest, sum) and rescales its
// part.
template <typename T, int V, int PIECES, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS) cluster_kernel(const Rows<T> rows, int blocks) {
#if __CUDA_ARCH__ >= 900
    __shared__ float shared[2][32];
    __shared__ float2 pairs[16];
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // waited for before the first remote store
    const int rank = blockIdx.x % blocks;
    const int64_t row = blockIdx.x / blocks;
    const int width = (rows.N + blocks * V - 1) / (blocks * V) * V, begin = rank * width,
              end = min(begin + width, rows.N);
    float f[PIECES][V];
    float highest = read_row<T, V, PIECES, THREADS>(rows, row, begin, end, threadIdx.x, f);
    highest = over_block<Highest, THREADS>(highest, shared[0], -INFINITY);
    const float safe = highest == -INFINITY ? 0.f : highest;
    float total = over_block<Sum, THREADS>(exponentials(f, safe), shared[1], 0.f);
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // every block of the cluster has started
    if (threadIdx.x < blocks) {
        uint32_t there;
        const uint32_t here = static_cast<uint32_t>(__cvta_generic_to_shared(pairs + rank));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(threadIdx.x));
        asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(there), "f"(highest), "f"(total) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    float all = -INFINITY;
    for (int b = 0; b < blocks; ++b) all = fmaxf(all, pairs[b].x);
    total = 0.f;
    for (int b = 0; b < blocks; ++b)
        total += pairs[b].x == -INFINITY ? pairs[b].y : pairs[b].y * expf(pairs[b].x - all);
    write_row<T, V, PIECES, THREADS>(rows, row, begin, end, threadIdx.x, f, expf(safe - all) / total);
#endif
}
#endif

// ---- host
// ------------------------------------------------------------------------------------------------------------
enum Variant { WARP, BLOCK, CLUSTER, ONLINE };

template <typename T, int V>
cudaError_t run(int variant, int threads, int blocks, const Rows<T>& rows, cudaStream_t stream) {
    constexpr int FEW = V > 8 ? 1 : 8 / V, SOME = 16 / V,
                  MANY = 32 / V;  // pieces that make 8, 16, 32 values a thread
    const unsigned M = static_cast<unsigned>(rows.M);
    if (variant == WARP) {
        auto kernel = rows.N <= 256   ? warp_kernel<T, V, FEW>
                      : rows.N <= 512 ? warp_kernel<T, V, SOME>
                                      : warp_kernel<T, V, MANY>;
        kernel<<<(M + 7) / 8, 256, 0, stream>>>(rows);
    } else if (variant == BLOCK) {
        auto kernel = threads == 256
                          ? (rows.N <= 4096 ? block_kernel<T, V, SOME, 256> : block_kernel<T, V, MANY, 256>)
                      : threads == 128 ? block_kernel<T, V, SOME, 128>
                      : threads == 512 ? block_kernel<T, V, MANY, 512>
                                       : block_kernel<T, V, MANY, 1024>;
        kernel<<<M, threads, 0, stream>>>(rows);
    } else if (variant == ONLINE) {
        online_kernel<T, V><<<M, 1024, 0, stream>>>(rows);
    } else {
#ifdef GALLERY_HOPPER
        auto kernel = threads == 256 ? cluster_kernel<T, V, MANY, 256> : cluster_kernel<T, V, MANY, 512>;
        if (blocks > 8)
            if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1))
                return e;
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = blocks, attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(M * blocks), config.blockDim = dim3(threads), config.stream = stream;
        config.attrs = &attribute, config.numAttrs = 1;
        return cudaLaunchKernelEx(&config, kernel, rows, blocks);
#else
        return cudaErrorInvalidDeviceFunction;
#endif
    }
    return cudaGetLastError();
}

template <typename T>
cudaError_t start(int variant, int threads, int blocks, bool aligned, const Rows<T>& rows, cudaStream_t stream) {
    constexpr int V = 16 / sizeof(T);
    return aligned ? run<T, V>(variant, threads, blocks, rows, stream)
                   : run<T, 1>(variant, threads, blocks, rows, stream);
}
}  // namespace softmax
// ---- end softmax
// -------------------------------------------------------------------------------------------------------

// dtype: 0 float, 1 half, 2 bfloat16. Returns a cudaError_t.
extern "C" int softmax_launch(int variant, int threads, int blocks, int activation, int dtype, int aligned,
                              const void* z, int64_t stride, const void* bias, float scale, const void* mask,
                              int64_t mask_stride, int mask_is_bool, void* y, int64_t M, int N, void* stream) {
    auto go = [&](auto zero) {
        using T = decltype(zero);
        const softmax::Rows<T> rows{
            static_cast<const T*>(z),
            stride,
            static_cast<T*>(y),
            M,
            N,
            {static_cast<const T*>(bias), mask, mask_stride, mask_is_bool, scale, activation}};
        return softmax::start<T>(variant, threads, blocks, aligned, rows, static_cast<cudaStream_t>(stream));
    };
    return dtype == 0 ? go(float()) : dtype == 1 ? go(__half()) : go(__nv_bfloat16());
}
"""

# The wrapper is C++ of its own, so that nvcc never parses torch's headers: that is most of a usual build.
CPP_SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

extern "C" int softmax_launch(int variant, int threads, int blocks, int activation, int dtype, int aligned,
                              const void* z, int64_t stride, const void* bias, float scale, const void* mask,
                              int64_t mask_stride, int mask_is_bool, void* y, int64_t M, int N, void* stream);

// bias and mask may be empty tensors: then the step is left out.
torch::Tensor softmax(torch::Tensor z, torch::Tensor bias, torch::Tensor mask, double scale, int64_t activation,
                      int64_t variant, int64_t threads, int64_t blocks, bool aligned, bool in_place) {
    const auto type = z.scalar_type();
    TORCH_CHECK(z.is_cuda() && z.dim() == 2 && z.stride(1) == 1, "softmax: z [M, N] on the GPU, rows contiguous");
    TORCH_CHECK(type == torch::kFloat32 || type == torch::kFloat16 || type == torch::kBFloat16,
                "softmax: float32, float16 or bfloat16");
    const c10::cuda::CUDAGuard guard(z.device());
    TORCH_CHECK(!in_place || z.is_contiguous(), "softmax: in place needs a contiguous z");
    auto y = in_place ? z : torch::empty({z.size(0), z.size(1)}, z.options());
    const bool masked = mask.numel() > 0;
    const int error = softmax_launch(
        static_cast<int>(variant), static_cast<int>(threads), static_cast<int>(blocks), static_cast<int>(activation),
        type == torch::kFloat32   ? 0
        : type == torch::kFloat16 ? 1
                                  : 2,
        aligned, z.data_ptr(), z.stride(0), bias.numel() > 0 ? bias.data_ptr() : nullptr, static_cast<float>(scale),
        masked ? mask.data_ptr() : nullptr, masked && mask.dim() == 2 ? mask.stride(0) : 0,
        masked && mask.scalar_type() == torch::kBool, y.data_ptr(), z.size(0), static_cast<int>(z.size(1)),
        c10::cuda::getCurrentCUDAStream().stream());
    C10_CUDA_CHECK(static_cast<cudaError_t>(error));
    return y;
}
"""

WARP, BLOCK, CLUSTER, ONLINE = range(4)
VARIANTS = ("warp", "block", "cluster", "online")
ACTIVATIONS = {None: 0, "gelu": 1, "gelu_tanh": 2}


@dataclass(frozen=True)
class Plan:
    """Which kernel runs, and with how many threads and blocks a row."""

    variant: int
    """Index in ``VARIANTS``."""
    threads: int
    """Threads of a block."""
    blocks: int
    """Blocks of a cluster; 1 elsewhere."""
    aligned: bool
    """Whether 16-byte loads and stores are used."""

    def __str__(self) -> str:
        width = "16-byte" if self.aligned else "one-element"
        shape = f"{self.threads} threads a block, {self.blocks} blocks a row"
        return f"{VARIANTS[self.variant]}: {shape}, {width} loads and stores"


LONGEST_ROWS = ((1024, WARP, 256, 1), (2048, BLOCK, 128, 1), (8192, BLOCK, 256, 1))
"""The longest row, and the variant, threads and blocks that take it, on any device. Figures: docs/gallery.md."""
LONGER_ROWS = ((16384, BLOCK, 512, 1), (32768, BLOCK, 1024, 1))
"""What follows without clusters; beyond it, online."""
LONGER_ROWS_HOPPER = (*LONGER_ROWS, (65536, CLUSTER, 512, 4), (131072, CLUSTER, 512, 8), (262144, CLUSTER, 512, 16))
"""What follows with clusters: several small blocks a multiprocessor, so that one loads while another computes."""


@functools.lru_cache(maxsize=4096)
def choose(N: int, aligned: bool, hopper: bool) -> Plan:
    """The plan for rows of N elements; ``aligned``: every row, bias and mask start at a multiple of 16 bytes and N
    fills pieces."""
    for longest, variant, threads, blocks in LONGEST_ROWS + (LONGER_ROWS_HOPPER if hopper else LONGER_ROWS):
        if longest >= N:
            return Plan(variant, threads, blocks, aligned)
    return Plan(ONLINE, 1024, 1, aligned)


def hopper_flags() -> list[str]:
    """nvcc flags for Hopper's own code, where the GPU in hand is one and TORCH_CUDA_ARCH_LIST, if set, names it."""
    listed = os.environ.get("TORCH_CUDA_ARCH_LIST", "9.0")
    if not ("9.0" in listed or "Hopper" in listed) or not torch.cuda.is_available():
        return []
    try:
        ctypes.CDLL("libcuda.so.1")  # the driver: an emulated device has none, and runs the portable kernels
    except OSError:
        return []
    if torch.cuda.get_device_capability() != (9, 0):
        return []
    return ["-DGALLERY_HOPPER", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_80,code=compute_80"]


@functools.cache
def extension() -> Any:
    """The compiled module, built on first use."""
    return load_inline(
        name="gallery_softmax",
        cpp_sources=CPP_SOURCE,
        cuda_sources=CUDA_SOURCE,
        functions=["softmax"],
        extra_cuda_cflags=["-O3", "-std=c++17", *hopper_flags()],
        no_implicit_headers=True,
    )


@functools.cache
def _hopper(index: int) -> bool:
    return bool(hopper_flags()) and torch.cuda.get_device_capability(index) == (9, 0)


def softmax(
    z: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    scale: float = 1.0,
    activation: str | None = None,
    in_place: bool = False,
    plan: Plan | None = None,
) -> torch.Tensor:
    """softmax(activation(z + bias) * scale + mask) over the last dimension; z [..., N], bias [N], mask [N] or of z's
    shape.

    ``activation``: None, "gelu" (erf) or "gelu_tanh"; ``in_place``: z, contiguous, receives the result. Raises
    ``RuntimeError`` for a wrong dtype, device or shape.
    """
    if activation not in ACTIVATIONS:
        raise RuntimeError(f"softmax: activation None, 'gelu' or 'gelu_tanh', got {activation!r}")
    if z.dim() < 1 or not z.is_cuda:
        raise RuntimeError(f"softmax: z [..., N] on the GPU, got {tuple(z.shape)} on {z.device}")
    N = z.shape[-1]
    if z.numel() == 0:
        return torch.empty_like(z)
    rows = z.reshape(-1, N)
    if rows.stride(1) != 1 and N > 1 and not in_place:
        rows = rows.contiguous()
    none = z.new_empty(0)
    if bias is not None:
        if bias.shape != (N,) or bias.dtype != z.dtype or bias.device != z.device:
            raise RuntimeError(f"softmax: bias must be [{N}], {z.dtype}, on {z.device}")
        bias = bias.contiguous()
    if mask is not None:
        if mask.shape not in ((N,), z.shape) or mask.device != z.device:
            raise RuntimeError(f"softmax: mask must be [{N}] or {tuple(z.shape)}, on {z.device}")
        mask = (mask if mask.dtype in (torch.bool, z.dtype) else mask.to(z.dtype)).contiguous()
        mask = mask.reshape(-1, N) if mask.shape == z.shape and z.dim() > 1 else mask
    pointers = rows.data_ptr() | (rows.stride(0) * z.element_size() if rows.shape[0] > 1 else 0) | N * z.element_size()
    for extra in (bias, mask):
        pointers |= 0 if extra is None or extra.dtype == torch.bool else extra.data_ptr()
    if plan is None:
        plan = choose(N, pointers % 16 == 0, _hopper(z.device.index or 0))
    y = extension().softmax(
        rows,
        none if bias is None else bias,
        none if mask is None else mask,
        scale,
        ACTIVATIONS[activation],
        plan.variant,
        plan.threads,
        plan.blocks,
        plan.aligned,
        in_place,
    )
    return y.reshape(z.shape)


def gelu_softmax(z: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(gelu(z + bias)) over the last dimension, with PyTorch's erf GELU."""
    return softmax(z, bias=bias, activation="gelu")


class ModelNew(nn.Module):
    """Replaces ``F.softmax(F.gelu(z + bias), dim=1)``."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        extension()

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return gelu_softmax(z, self.bias.detach())
