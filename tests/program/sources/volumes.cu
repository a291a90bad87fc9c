// Stream-ordered allocation from a pool, and a copy of a volume there and back.
#include <cstdio>
#include <cstring>
#include <vector>

int main() {
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaMemPool_t pool;
  cudaDeviceGetDefaultMemPool(&pool, 0);
  void* block = nullptr;
  unsigned long long used = 0;
  cudaMallocAsync(&block, 1000, stream);
  cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
  std::printf("used %llu\n", used);
  cudaFreeAsync(block, stream);
  cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
  std::printf("used %llu\n", used);
  const int width = 5, height = 3, depth = 2;
  std::vector<int> from(width * height * depth), to(from.size());
  for (size_t i = 0; i < from.size(); i++) from[i] = int(i * i);
  cudaExtent extent = make_cudaExtent(width * sizeof(int), height, depth);
  cudaPitchedPtr device;
  cudaMalloc3D(&device, extent);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(from.data(), width * sizeof(int), width, height);
  copy.dstPtr = device;
  copy.extent = extent;
  copy.kind = cudaMemcpyHostToDevice;
  cudaMemcpy3D(&copy);
  copy.dstPtr = make_cudaPitchedPtr(to.data(), width * sizeof(int), width, height);
  copy.srcPtr = device;
  copy.kind = cudaMemcpyDeviceToHost;
  cudaMemcpy3D(&copy);
  std::puts(from == to ? "same" : "different");
  cudaArray_t array;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  std::puts(cudaGetErrorName(cudaMallocArray(&array, &format, 4, 4)));
  return 0;
}
