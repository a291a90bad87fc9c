__global__ void spin(volatile int* flag) {
  while (*flag == 0) {
  }
}

int main() {
  int* flag;
  cudaMalloc(&flag, sizeof(int));
  cudaMemset(flag, 0, sizeof(int));
  spin<<<1, 32>>>(flag);
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 7;
}
