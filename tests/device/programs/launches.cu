// Kernels on torch's memory, for launches.py: right ones, wrong ones, and what the host sees of them.
#include <cstdio>

__constant__ float factor;
__device__ int counter;
__managed__ int managed;

__global__ void scale(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i] + managed;
  if (i < n) atomicAdd(&counter, 1);
}

__global__ void overrun(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i] = 1.0f;
}

__global__ void speak() {
  if (threadIdx.x < 2) printf("thread %d\n", threadIdx.x);
}

extern "C" int run_scale(float* y, const float* x, int n, float f) {
  cudaMemcpyToSymbol(factor, &f, sizeof f);
  managed = 2;
  scale<<<(n + 63) / 64, 64>>>(y, x, n);  // launch: scale
  int count = -1;
  cudaMemcpyFromSymbol(&count, counter, sizeof count);
  return count;
}

extern "C" int run_overrun(float* y, int n) {
  overrun<<<(n + 64) / 64, 64>>>(y, n);  // launch: overrun
  return cudaGetLastError();
}

extern "C" int run_large(float* y) {
  overrun<<<1, dim3(64, 32)>>>(y, 0);  // launch: large
  return cudaGetLastError();
}

extern "C" int run_speak() {
  speak<<<1, 32>>>();
  return cudaDeviceSynchronize();
}

extern "C" int copy_too_much(void* to, int bytes) {
  static char host[4096];
  return cudaMemcpy(to, host, bytes, cudaMemcpyHostToDevice);
}

extern "C" int make_array() {
  cudaArray_t array;
  cudaChannelFormatDesc format{32, 0, 0, 0, cudaChannelFormatKindFloat};
  return cudaMallocArray(&array, &format, 4, 4);
}
