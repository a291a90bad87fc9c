extern "C" __global__ void gemv(const float4* __restrict__ a, const float4* __restrict__ x, float* y, int rows, int quads) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float sum = 0;
    for (int i = threadIdx.x; i < quads; i += 32) {
        float4 p = a[(long long)row * quads + i], q = x[i];
        sum += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
    }
    for (int o = 16; o; o >>= 1) sum += __shfl_down_sync(0xffffffff, sum, o);
    if (threadIdx.x == 0) y[row] = sum;
}
