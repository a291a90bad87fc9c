#include <cstdio>

__global__ void fetch(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex1Dfetch<float>(texture, threadIdx.x);
}

int main() {
  float* out;
  cudaMalloc(&out, 128);
  fetch<<<1, 32>>>(0, out);
  printf("%s\n", cudaGetErrorString(cudaGetLastError()));
}
