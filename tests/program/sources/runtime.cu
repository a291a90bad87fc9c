// What programs use of the runtime API, each with its own check; prints one line for each that is wrong.
#include <cstdio>
#include <cstring>
#include <vector>

#define CHECK(condition) \
  if (!(condition)) { std::printf("wrong at line %d: %s\n", __LINE__, #condition); wrong++; }
#define OK(call) CHECK((call) == cudaSuccess)

static int wrong = 0;

__constant__ float factors[4];
__device__ float table[4] = {1, 2, 3, 4};
__managed__ int shared_total = 5;

__global__ void scale(float* out, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * factors[i % 4] + table[i % 4];
}

__global__ void total(int* out) {
  atomicAdd(out, 1);
  if (threadIdx.x == 0) atomicAdd(&shared_total, 10);
}

__global__ void speak(const char* what) { printf("%s from thread %d, %.3f, %5s|%-4d|%lld\n", what, threadIdx.x, 1.5, "ab", 7, 1ll << 40); }

static void symbols() {
  const float host[4] = {10, 20, 30, 40};
  OK(cudaMemcpyToSymbol(factors, host, sizeof host));
  float* in = nullptr;
  float* out = nullptr;
  OK(cudaMalloc(&in, 64 * sizeof(float)));
  OK(cudaMalloc(&out, 64 * sizeof(float)));
  std::vector<float> values(64), got(64);
  for (int i = 0; i < 64; i++) values[i] = float(i);
  OK(cudaMemcpy(in, values.data(), 256, cudaMemcpyHostToDevice));
  scale<<<2, 32>>>(out, in, 64);
  OK(cudaGetLastError());
  OK(cudaMemcpy(got.data(), out, 256, cudaMemcpyDeviceToHost));
  bool right = true;
  for (int i = 0; i < 64; i++) right = right && got[i] == float(i) * host[i % 4] + float(i % 4 + 1);
  CHECK(right);
  void* address = nullptr;
  size_t bytes = 0;
  OK(cudaGetSymbolAddress(&address, table));
  OK(cudaGetSymbolSize(&bytes, table));
  CHECK(address != nullptr && bytes == 16);
  OK(cudaFree(in));
  OK(cudaFree(out));
}

static void managed() {
  int* count = nullptr;
  OK(cudaMallocManaged(&count, sizeof(int)));
  *count = 100;
  total<<<2, 64>>>(count);
  OK(cudaDeviceSynchronize());
  CHECK(*count == 228);
  CHECK(shared_total == 25);
  OK(cudaFree(count));
}

static void streams() {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreate(&end));
  OK(cudaEventRecord(begin, stream));
  int* pinned = nullptr;
  int* count = nullptr;
  OK(cudaMallocHost(&pinned, sizeof(int)));
  OK(cudaMallocAsync(&count, sizeof(int), stream));
  OK(cudaMemsetAsync(count, 0, sizeof(int), stream));
  total<<<1, 32, 0, stream>>>(count);
  OK(cudaMemcpyAsync(pinned, count, sizeof(int), cudaMemcpyDeviceToHost, stream));
  OK(cudaEventRecord(end, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(*pinned == 32);
  float milliseconds = -1;
  OK(cudaEventElapsedTime(&milliseconds, begin, end));
  CHECK(milliseconds >= 0);
  OK(cudaFreeAsync(count, stream));
  OK(cudaFreeHost(pinned));
  OK(cudaEventDestroy(begin));
  OK(cudaEventDestroy(end));
  OK(cudaStreamDestroy(stream));
}

static void rows() {
  const size_t width = 10 * sizeof(int), height = 5;
  size_t pitch = 0;
  int* device = nullptr;
  OK(cudaMallocPitch(&device, &pitch, width, height));
  CHECK(pitch >= width);
  int from[50], to[50] = {};
  for (int i = 0; i < 50; i++) from[i] = i * 3;
  OK(cudaMemcpy2D(device, pitch, from, width, width, height, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2D(to, width, device, pitch, width, height, cudaMemcpyDeviceToHost));
  CHECK(std::memcmp(from, to, sizeof from) == 0);
  OK(cudaFree(device));
}

static void device() {
  cudaDeviceProp properties;
  int count = 0, current = -1;
  OK(cudaGetDeviceCount(&count));
  OK(cudaGetDevice(&current));
  OK(cudaGetDeviceProperties(&properties, 0));
  CHECK(count == 1 && current == 0 && properties.warpSize == 32);
  std::printf("on %s\n", properties.name);
}

int main() {
  device();
  symbols();
  managed();
  streams();
  rows();
  char* words = nullptr;
  OK(cudaMallocManaged(&words, 16));
  std::strcpy(words, "hello");
  speak<<<1, 2>>>(words);
  OK(cudaDeviceSynchronize());
  std::puts(wrong ? "WRONG" : "RIGHT");
  return wrong != 0;
}
