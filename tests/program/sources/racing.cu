// Two threads of different warps write one place of shared memory, and two blocks one of global memory.
#include <cstdio>

__global__ void racing(int* out) {
    __shared__ int last;
    if (threadIdx.x % 32 == 0) last = threadIdx.x;  // shared
    __syncthreads();
    if (threadIdx.x == 0) *out = last + blockIdx.x;  // global
}

int main() {
    int* out;
    cudaMalloc(&out, sizeof(int));
    racing<<<2, 64>>>(out);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
