// Calls of the CUDA runtime API, most of them wrong, and what each answers. The text of a GPU is kept in api_probe.txt;
// the emulated device must answer the same. As a program (-DPROBE_MAIN) it prints its text.
#include <cstdarg>
#include <cstdio>
#include <cstring>

__global__ void plain(int* p) {}
__global__ void dynamic_shared(int* p) {
  extern __shared__ int s[];
  if (p) p[0] = s[0];
}
__global__ void static_shared(int* p) {
  __shared__ int s[1024];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (p) p[0] = s[(threadIdx.x + 1) % 1024];
}
__global__ void __launch_bounds__(128) bounded(int* p) {}
// Each thread keeps 96 values alive, so 1024 threads want more registers than there are.
__global__ void many_registers(int* p) {
  if (!p) return;
  int v[96];
#pragma unroll
  for (int i = 0; i < 96; i++) v[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; i++) p[i * 1024 + threadIdx.x] = v[95 - i] * v[(i * 7) % 96];
}
__device__ int variable[4];
__constant__ float coefficient[8];

static char* g_out;
static int g_left;
static void say(const char* format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(g_out, g_left, format, args);
  va_end(args);
  g_out += n;
  g_left -= n;
}
static void answer(const char* what, cudaError_t direct) {
  cudaError_t peek = cudaPeekAtLastError(), last = cudaGetLastError(), then = cudaGetLastError();
  say("%s: %d, last %d %d %d\n", what, direct, peek, last, then);
}
#define CALL(...) answer(#__VA_ARGS__, __VA_ARGS__)
#define LAUNCH(kernel, ...)                            \
  do {                                                 \
    kernel<<<__VA_ARGS__>>>(nullptr);                  \
    answer(#kernel "<<<" #__VA_ARGS__ ">>>", cudaSuccess); \
  } while (0)

extern "C" int probe(char* out, int bytes) {
  g_out = out;
  g_left = bytes;
  LAUNCH(plain, 1, 1);
  LAUNCH(plain, 1, 1024);
  LAUNCH(plain, 1, 1025);
  LAUNCH(plain, 1, dim3(32, 32, 1));
  LAUNCH(plain, 1, dim3(32, 33, 1));
  LAUNCH(plain, 1, dim3(1, 1, 64));
  LAUNCH(plain, 1, dim3(1, 1, 65));
  LAUNCH(plain, 0, 32);
  LAUNCH(plain, 1, 0);
  LAUNCH(plain, dim3(1, 0, 1), 32);
  LAUNCH(plain, dim3(1, 65535, 1), 1);
  LAUNCH(plain, dim3(1, 65536, 1), 1);
  LAUNCH(plain, dim3(1, 1, 65536), 1);
  LAUNCH(plain, dim3(1u << 31, 1, 1), 1);
  LAUNCH(bounded, 1, 128);
  LAUNCH(bounded, 1, 129);
  LAUNCH(bounded, 1, 1024);
  LAUNCH(dynamic_shared, 1, 32, 49152);
  LAUNCH(dynamic_shared, 1, 32, 49153);
  LAUNCH(dynamic_shared, 1, 32, 1 << 20);
  LAUNCH(static_shared, 1, 32, 49152 - 4096);
  LAUNCH(static_shared, 1, 32, 49152 - 4095);
  CALL(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  LAUNCH(dynamic_shared, 1, 32, 65536);
  LAUNCH(dynamic_shared, 1, 32, 65537);
  CALL(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024));
  CALL(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1));
  CALL(cudaFuncSetAttribute(static_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 - 4096));
  CALL(cudaFuncSetAttribute(static_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 - 4095));
  CALL(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024));
  LAUNCH(dynamic_shared, 1, 32, 1024);
  LAUNCH(dynamic_shared, 1, 32, 1025);
  LAUNCH(dynamic_shared, 1, 32, 49152);
  LAUNCH(many_registers, 1, 512);
  LAUNCH(many_registers, 1, 1024);
  LAUNCH(many_registers, 1, 1025);
  int* none = nullptr;
  void* args[] = {&none};
  CALL(cudaLaunchKernel((const void*)plain, dim3(1), dim3(1025), args, 0, 0));
  CALL(cudaLaunchKernel((const void*)plain, dim3(0), dim3(32), args, 0, 0));
  CALL(cudaLaunchKernel((const void*)plain, dim3(1, 65536), dim3(32), args, 0, 0));
  CALL(cudaLaunchKernel((const void*)bounded, dim3(1), dim3(129), args, 0, 0));
  CALL(cudaLaunchKernel((const void*)plain, dim3(1), dim3(32), args, 1 << 20, 0));
  CALL(cudaLaunchKernel((const void*)many_registers, dim3(1), dim3(1024), args, 0, 0));
  CALL(cudaLaunchCooperativeKernel((const void*)plain, dim3(132 * 32), dim3(32), args, 0, 0));
  CALL(cudaLaunchCooperativeKernel((const void*)plain, dim3(132 * 32 + 1), dim3(32), args, 0, 0));
  CALL(cudaLaunchCooperativeKernel((const void*)plain, dim3(132 * 2 + 1), dim3(1024), args, 0, 0));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1025);
  CALL(cudaLaunchKernelExC(&config, (const void*)plain, args));
  CALL(cudaFuncSetAttribute((const void*)answer, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024));
  CALL(cudaLaunchKernel((const void*)answer, dim3(1), dim3(1), nullptr, 0, 0));

  int* device = nullptr;
  int host[64] = {0};
  CALL(cudaMalloc(&device, 0));
  say("pointer of cudaMalloc(0) is %s\n", device ? "set" : "null");
  CALL(cudaMalloc(&device, 256));
  CALL(cudaMalloc((void**)nullptr, 256));
  void* huge = nullptr;
  CALL(cudaMalloc(&huge, 1ull << 50));
  CALL(cudaFree(nullptr));
  CALL(cudaFree(host));
  CALL(cudaFree(device + 1));
  CALL(cudaMemcpy(device, host, 256, cudaMemcpyHostToDevice));
  CALL(cudaMemcpy(device, host, 0, cudaMemcpyHostToDevice));
  CALL(cudaMemcpy(nullptr, host, 16, cudaMemcpyHostToDevice));
  CALL(cudaMemcpy(nullptr, host, 0, cudaMemcpyHostToDevice));
  CALL(cudaMemcpy(host, host + 8, 16, cudaMemcpyHostToDevice));
  CALL(cudaMemcpy(host, host + 8, 16, cudaMemcpyDeviceToHost));
  CALL(cudaMemcpy(host, device, 16, cudaMemcpyHostToDevice));
  CALL(cudaMemcpy(device, host, 16, cudaMemcpyDeviceToHost));
  CALL(cudaMemcpy(host, host + 8, 16, cudaMemcpyDefault));
  CALL(cudaMemcpy(host, device, 256, cudaMemcpyDefault));
  CALL(cudaMemcpy(host, device, 16, (cudaMemcpyKind)9));
  CALL(cudaMemcpyAsync(device, host, 256, cudaMemcpyHostToDevice));
  CALL(cudaMemset(device, 0, 256));
  CALL(cudaMemset(host, 0, 16));
  CALL(cudaMemset(nullptr, 0, 0));
  CALL(cudaMemcpy2D(device, 16, host, 32, 24, 2, cudaMemcpyHostToDevice));
  CALL(cudaMemcpy2D(device, 32, host, 32, 24, 2, cudaMemcpyHostToDevice));
  CALL(cudaFree(device));
  CALL(cudaFree(device));

  CALL(cudaMemcpyToSymbol(variable, host, 16));
  CALL(cudaMemcpyToSymbol(variable, host, 17));
  CALL(cudaMemcpyToSymbol(variable, host, 8, 12));
  CALL(cudaMemcpyFromSymbol(host, coefficient, 32));
  CALL(cudaMemcpyToSymbol((const void*)host, host, 4));
  size_t size = 0;
  CALL(cudaGetSymbolSize(&size, coefficient));
  say("size %zu\n", size);
  void* address = nullptr;
  CALL(cudaGetSymbolAddress(&address, (const void*)host));

  int count = 0, value = 0;
  CALL(cudaGetDeviceCount(&count));
  CALL(cudaSetDevice(0));
  CALL(cudaSetDevice(100));
  CALL(cudaSetDevice(-1));
  CALL(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, 0));
  CALL(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, 100));
  cudaDeviceProp properties;
  CALL(cudaGetDeviceProperties(&properties, 100));

  cudaEvent_t a, b;
  float ms = -1;
  CALL(cudaEventCreate(&a));
  CALL(cudaEventCreate(&b));
  CALL(cudaEventElapsedTime(&ms, a, b));
  CALL(cudaEventRecord(a));
  CALL(cudaEventRecord(b));
  CALL(cudaEventSynchronize(b));
  CALL(cudaEventElapsedTime(&ms, a, b));
  CALL(cudaEventDestroy(a));
  cudaStream_t stream;
  CALL(cudaStreamCreate(&stream));
  CALL(cudaStreamQuery(stream));
  CALL(cudaStreamSynchronize(stream));
  CALL(cudaStreamDestroy(stream));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  CALL(cudaStreamIsCapturing(0, &status));
  say("capturing %d\n", status);

  cudaPointerAttributes attributes;
  CALL(cudaPointerGetAttributes(&attributes, host));
  say("host pointer: type %d, device %d, device pointer %s, host pointer %s\n", attributes.type, attributes.device,
      attributes.devicePointer ? "set" : "null", attributes.hostPointer ? "set" : "null");
  CALL(cudaMalloc(&device, 64));
  CALL(cudaPointerGetAttributes(&attributes, device));
  say("device pointer: type %d, device %d, device pointer %s, host pointer %s\n", attributes.type, attributes.device,
      attributes.devicePointer ? "set" : "null", attributes.hostPointer ? "set" : "null");
  void* pinned = nullptr;
  CALL(cudaMallocHost(&pinned, 64));
  CALL(cudaPointerGetAttributes(&attributes, pinned));
  say("pinned pointer: type %d, device %d, device pointer %s, host pointer %s\n", attributes.type, attributes.device,
      attributes.devicePointer ? "set" : "null", attributes.hostPointer ? "set" : "null");
  CALL(cudaFree(pinned));
  CALL(cudaFreeHost(pinned));

  static const int sizes[] = {1, 32, 33, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1025, 0};
  static const int shared[] = {0, 1024, 16384, 49152, 100000, 232448, 232449};
  for (int threads : sizes)
    for (int bytes : shared) {
      int blocks = -1;
      cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, dynamic_shared, threads, bytes);
      say("occupancy %d threads %d bytes: %d blocks, error %d\n", threads, bytes, blocks, error);
      cudaGetLastError();
    }
  int blocks = -1;
  CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, many_registers, 256, 0));
  say("many_registers: %d blocks\n", blocks);
  CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, many_registers, 1024, 0));
  say("many_registers: %d blocks\n", blocks);
  CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, static_shared, 32, 0));
  say("static_shared: %d blocks\n", blocks);
  CALL(cudaDeviceSynchronize());
  return 0;
}

// What is left of the API once a kernel has faulted.
extern "C" int probe_after_fault(char* out, int bytes) {
  g_out = out;
  g_left = bytes;
  int host[4];
  void* p = nullptr;
  cudaEvent_t e;
  cudaStream_t s;
  int count = 0;
  cudaDeviceProp properties;
  size_t free_bytes, total;
  CALL(cudaDeviceSynchronize());
  CALL(cudaMalloc(&p, 64));
  CALL(cudaFree(nullptr));
  CALL(cudaMemcpy(host, host, 16, cudaMemcpyHostToHost));
  CALL(cudaMemset(host, 0, 0));
  CALL(cudaGetDeviceCount(&count));
  CALL(cudaGetDevice(&count));
  CALL(cudaSetDevice(0));
  CALL(cudaGetDeviceProperties(&properties, 0));
  CALL(cudaDeviceGetAttribute(&count, cudaDevAttrWarpSize, 0));
  CALL(cudaMemGetInfo(&free_bytes, &total));
  CALL(cudaEventCreate(&e));
  CALL(cudaStreamCreate(&s));
  CALL(cudaStreamSynchronize(0));
  CALL(cudaStreamQuery(0));
  CALL(cudaRuntimeGetVersion(&count));
  LAUNCH(plain, 1, 1);
  LAUNCH(plain, 1, 2048);
  return 0;
}

#ifdef PROBE_MAIN
__global__ void faulty(int* p) { p[blockDim.x] = 1; }
int main() {
  static char text[1 << 16];
  probe(text, sizeof text);
  fputs(text, stdout);
  cudaFuncAttributes f;
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  cudaFuncGetAttributes(&f, dynamic_shared);
  fprintf(stderr, "%s regs %d static %zu maxdyn %d maxthreads %d const %zu local %zu bin %d ptx %d\n", p.name, f.numRegs,
          f.sharedSizeBytes, f.maxDynamicSharedSizeBytes, f.maxThreadsPerBlock, f.constSizeBytes, f.localSizeBytes,
          f.binaryVersion, f.ptxVersion);
  cudaFuncGetAttributes(&f, many_registers);
  fprintf(stderr, "many_registers regs %d maxthreads %d\n", f.numRegs, f.maxThreadsPerBlock);
  faulty<<<1, 1>>>(nullptr);
  cudaDeviceSynchronize();
  cudaGetLastError();
  probe_after_fault(text, sizeof text);
  puts("-- after a fault");
  fputs(text, stdout);
  return 0;
}
#endif
