#include <cstdio>
#include <vector>

#define MUST(call)                                                                            \
  do {                                                                                        \
    cudaError_t error = call;                                                                 \
    if (error != cudaSuccess) {                                                               \
      printf("line %d: %s\n", __LINE__, cudaGetErrorName(error));                             \
      return 1;                                                                               \
    }                                                                                         \
  } while (0)

constexpr int N = 256;

__global__ void scale(float* data, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= by;
}
__global__ void add(const float* a, const float* b, float* sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

int calls = 0;
void called(void* by) { calls += *static_cast<int*>(by); }

// Two ways that part and meet again, from a graph that is put together by hand.
int explicit_graph(float* device, float* other, const std::vector<float>& host, std::vector<float>& back) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t copy_in, fill, scaled, called_node, copy_out;
  MUST(cudaGraphCreate(&graph, 0));
  MUST(cudaGraphAddMemcpyNode1D(&copy_in, graph, nullptr, 0, device, host.data(), N * 4, cudaMemcpyHostToDevice));
  cudaMemsetParams ones{other, 0, 0x3f800000, 4, N, 1};
  MUST(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &ones));
  int n = N;
  float by = 3;
  void* args[] = {&device, &by, &n};
  cudaKernelNodeParams kernel{};
  kernel.func = (void*)scale;
  kernel.gridDim = dim3(2);
  kernel.blockDim = dim3(128);
  kernel.kernelParams = args;
  MUST(cudaGraphAddKernelNode(&scaled, graph, &copy_in, 1, &kernel));
  by = 1000;  // the node has its own copy
  cudaGraphNode_t summed;
  void* sum_args[] = {&device, &other, &other, &n};
  kernel.func = (void*)add;
  kernel.kernelParams = sum_args;
  cudaGraphNode_t both[] = {scaled, fill};
  MUST(cudaGraphAddKernelNode(&summed, graph, both, 2, &kernel));
  MUST(cudaGraphAddMemcpyNode1D(&copy_out, graph, &summed, 1, back.data(), other, N * 4, cudaMemcpyDeviceToHost));
  static int one = 1;
  cudaHostNodeParams host_params{called, &one};
  MUST(cudaGraphAddHostNode(&called_node, graph, &copy_out, 1, &host_params));
  size_t nodes = 0, roots = 0;
  MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
  MUST(cudaGraphGetRootNodes(graph, nullptr, &roots));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphLaunch(exec, 0));
  MUST(cudaGraphLaunch(exec, 0));
  MUST(cudaDeviceSynchronize());
  printf("explicit: %zu nodes, %zu roots, %g, %d calls\n", nodes, roots, back[5], calls);
  by = 10;
  kernel.func = (void*)scale;
  kernel.kernelParams = args;
  MUST(cudaGraphExecKernelNodeSetParams(exec, scaled, &kernel));
  MUST(cudaGraphLaunch(exec, 0));
  MUST(cudaDeviceSynchronize());
  printf("changed: %g\n", back[5]);
  cudaGraphNode_t ring;
  MUST(cudaGraphAddEmptyNode(&ring, graph, &copy_out, 1));
  MUST(cudaGraphAddDependencies(graph, &ring, &copy_in, nullptr, 1));
  cudaGraphExec_t none;
  printf("ring: %s\n", cudaGetErrorName(cudaGraphInstantiate(&none, graph, 0)));
  cudaGetLastError();
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(graph));
  return 0;
}

// The same, recorded from two streams, then updated and put into another graph.
int captured(float* device, float* other, const std::vector<float>& host, std::vector<float>& back) {
  cudaStream_t stream, beside;
  cudaEvent_t parted, met;
  MUST(cudaStreamCreate(&stream));
  MUST(cudaStreamCreate(&beside));
  MUST(cudaEventCreate(&parted));
  MUST(cudaEventCreate(&met));
  cudaGraph_t graph;
  cudaGraphExec_t exec = nullptr;
  for (float by : {2.f, 5.f}) {
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    MUST(cudaMemcpyAsync(device, host.data(), N * 4, cudaMemcpyHostToDevice, stream));
    MUST(cudaEventRecord(parted, stream));
    MUST(cudaStreamWaitEvent(beside, parted));
    MUST(cudaMemsetAsync(other, 0, N * 4, beside));
    scale<<<2, 128, 0, stream>>>(device, by, N);
    MUST(cudaEventRecord(met, beside));
    MUST(cudaStreamWaitEvent(stream, met));
    add<<<2, 128, 0, stream>>>(device, other, other, N);
    MUST(cudaMemcpyAsync(back.data(), other, N * 4, cudaMemcpyDeviceToHost, stream));
    cudaStreamCaptureStatus status;
    MUST(cudaStreamIsCapturing(beside, &status));
    MUST(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0, edges = 0;
    MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
    MUST(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    cudaGraphExecUpdateResultInfo info{};
    if (exec == nullptr) MUST(cudaGraphInstantiate(&exec, graph, 0));
    else MUST(cudaGraphExecUpdate(exec, graph, &info));
    back.assign(N, -1);
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    printf("captured: %zu nodes, %zu edges, active %d, %g\n", nodes, edges, status == cudaStreamCaptureStatusActive, back[7]);
  }
  cudaGraph_t outer;
  cudaGraphNode_t child;
  MUST(cudaGraphCreate(&outer, 0));
  MUST(cudaGraphAddChildGraphNode(&child, outer, nullptr, 0, graph));
  cudaGraphExec_t outer_exec;
  MUST(cudaGraphInstantiate(&outer_exec, outer, 0));
  back.assign(N, -1);
  MUST(cudaGraphLaunch(outer_exec, stream));
  MUST(cudaStreamSynchronize(stream));
  printf("child: %g\n", back[9]);

  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cudaError_t waited = cudaStreamSynchronize(stream);
  cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  printf("waiting: %s, then %s\n", cudaGetErrorName(waited), cudaGetErrorName(ended));
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  MUST(cudaEventRecord(parted, stream));
  MUST(cudaStreamWaitEvent(beside, parted));
  scale<<<1, 32, 0, beside>>>(device, 1, 32);
  printf("unjoined: %s\n", cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
  cudaGetLastError();
  return 0;
}

int main() {
  float *device, *other;
  MUST(cudaMalloc(&device, N * 4));
  MUST(cudaMalloc(&other, N * 4));
  std::vector<float> host(N), back(N);
  for (int i = 0; i < N; i++) host[i] = i;
  if (explicit_graph(device, other, host, back)) return 1;
  return captured(device, other, host, back);
}
