#include <cstdio>

__global__ void fill(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) out[i] = 1.0f;
}

int main() {
  float* out;
  cudaMalloc(&out, 100 * sizeof(float));
  fill<<<1, 128>>>(out, 100);
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
