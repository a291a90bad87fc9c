// Blocks of a cooperative launch wait for one another; a launch of another kind has no grid to wait for.
#include <cooperative_groups.h>
#include <cstdio>

namespace cg = cooperative_groups;

__global__ void relay(int* values, int* sum) {
  cg::grid_group grid = cg::this_grid();
  for (int round = 0; round < 3; round++) {
    if (threadIdx.x == 0) values[blockIdx.x] = round * 10 + blockIdx.x;
    grid.sync();
    if (grid.thread_rank() == 0)
      for (int i = 0; i < gridDim.x; i++) *sum += values[i];
    grid.sync();
  }
}

__global__ void ask(int* valid) {
  if (threadIdx.x == 0) *valid = cg::this_grid().is_valid();
}

int main() {
  int *values, *sum, *valid;
  cudaMallocManaged(&values, 8 * sizeof(int));
  cudaMallocManaged(&sum, sizeof(int));
  cudaMallocManaged(&valid, sizeof(int));
  *sum = 0;
  void* arguments[] = {&values, &sum};
  cudaError_t error = cudaLaunchCooperativeKernel(reinterpret_cast<void*>(relay), dim3(8), dim3(64), arguments, 0, 0);
  cudaDeviceSynchronize();
  std::printf("%s: %d\n", cudaGetErrorName(error), *sum);
  ask<<<1, 32>>>(valid);
  cudaDeviceSynchronize();
  std::printf("valid: %d\n", *valid);
  return 0;
}
