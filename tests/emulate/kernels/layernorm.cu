extern "C" __global__ void layernorm(const float* x, const float* scale, const float* shift, float* y, int n, float eps) {
    extern __shared__ float buffer[];
    const float* row = x + (size_t)blockIdx.x * n;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { sum += row[i]; square += row[i] * row[i]; }
    buffer[threadIdx.x] = sum; buffer[blockDim.x + threadIdx.x] = square;
    __syncthreads();
    for (int s = blockDim.x / 2; s; s /= 2) {
        if (threadIdx.x < s) {
            buffer[threadIdx.x] += buffer[threadIdx.x + s];
            buffer[blockDim.x + threadIdx.x] += buffer[blockDim.x + threadIdx.x + s];
        }
        __syncthreads();
    }
    float mean = buffer[0] / n, inverse = rsqrtf(buffer[blockDim.x] / n - mean * mean + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = (row[i] - mean) * inverse * scale[i] + shift[i];
}
