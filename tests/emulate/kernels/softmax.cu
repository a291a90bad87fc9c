__device__ float warp_max(float v) { for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o)); return v; }
__device__ float warp_sum(float v) { for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o); return v; }
extern "C" __global__ void softmax(const float* x, float* y, int n) {
    __shared__ float part[32];
    const float* row = x + (long long)blockIdx.x * n;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float top = -INFINITY;
    for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, row[i]);
    top = warp_max(top);
    if (lane == 0) part[warp] = top;
    __syncthreads();
    top = warp_max(lane < warps ? part[lane] : -INFINITY);
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += expf(row[i] - top);
    sum = warp_sum(sum);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    sum = warp_sum(lane < warps ? part[lane] : 0.f);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(long long)blockIdx.x * n + i] = expf(row[i] - top) / sum;
}
