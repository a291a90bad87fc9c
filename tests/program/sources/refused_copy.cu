#include <cstdio>

int main() {
  float host[64] = {};
  float* device;
  cudaMalloc(&device, 32 * sizeof(float));
  cudaError_t error =
      cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice);
  std::puts(cudaGetErrorName(error));
  return 0;
}
