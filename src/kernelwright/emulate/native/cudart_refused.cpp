// CUDA runtime functions that the emulated device does not have, refused by name.
//
// Why: without them a candidate that calls one would fail to link, which reads as the candidate's fault. The rule: each
// answers cudaErrorNotSupported and says its name to the record. Arguments are not looked at, so none is declared; the
// list is what cuda_runtime_api.h of CUDA 13.0 declares and the other files do not define (weak, so they may).
#include <string>

#include "kw_runtime.h"

namespace {
constexpr int kNotSupported = 801;  // cudaErrorNotSupported

int refuse(const char* name) {
  std::string sentence = std::string("the emulated device has no ") + name;
  const kw_callbacks* callbacks = kw_get_callbacks();
  if (callbacks && callbacks->refusal) callbacks->refusal(nullptr, kNotSupported, "unexplained", sentence.c_str());
  return kNotSupported;
}
}  // namespace

#define KW_REFUSED(X) \
    X(cudaArrayGetInfo) X(cudaArrayGetMemoryRequirements) X(cudaArrayGetPlane) X(cudaCreateSurfaceObject) \
    X(cudaCreateTextureObject) X(cudaDestroyExternalMemory) X(cudaDestroyExternalSemaphore) \
    X(cudaDestroySurfaceObject) X(cudaDestroyTextureObject) \
    X(cudaDeviceFlushGPUDirectRDMAWrites) X(cudaDeviceGetHostAtomicCapabilities) \
    X(cudaDeviceGetNvSciSyncAttributes) X(cudaDeviceGetP2PAtomicCapabilities) \
    X(cudaDeviceRegisterAsyncNotification) X(cudaDeviceUnregisterAsyncNotification) \
    X(cudaExternalMemoryGetMappedBuffer) X(cudaExternalMemoryGetMappedMipmappedArray) X(cudaFreeArray) \
    X(cudaFreeMipmappedArray) X(cudaGetChannelDesc) X(cudaGetDriverEntryPointByVersion) X(cudaGetExportTable) \
    X(cudaGetMipmappedArrayLevel) X(cudaGetSurfaceObjectResourceDesc) \
    X(cudaGetTextureObjectResourceDesc) X(cudaGetTextureObjectResourceViewDesc) X(cudaGetTextureObjectTextureDesc) \
    X(cudaGraphAddExternalSemaphoresSignalNode) X(cudaGraphAddExternalSemaphoresWaitNode) \
    X(cudaGraphConditionalHandleCreate) X(cudaGraphExecExternalSemaphoresSignalNodeSetParams) \
    X(cudaGraphExecExternalSemaphoresWaitNodeSetParams) X(cudaGraphExecNodeSetParams) \
    X(cudaGraphExternalSemaphoresSignalNodeGetParams) X(cudaGraphExternalSemaphoresSignalNodeSetParams) \
    X(cudaGraphExternalSemaphoresWaitNodeGetParams) X(cudaGraphExternalSemaphoresWaitNodeSetParams) \
    X(cudaGraphNodeSetParams) X(cudaGraphicsMapResources) X(cudaGraphicsResourceGetMappedMipmappedArray) \
    X(cudaGraphicsResourceGetMappedPointer) X(cudaGraphicsResourceSetMapFlags) \
    X(cudaGraphicsSubResourceGetMappedArray) X(cudaGraphicsUnmapResources) X(cudaGraphicsUnregisterResource) \
    X(cudaImportExternalMemory) X(cudaImportExternalSemaphore) X(cudaIpcCloseMemHandle) X(cudaIpcGetEventHandle) \
    X(cudaIpcGetMemHandle) X(cudaIpcOpenEventHandle) X(cudaIpcOpenMemHandle) X(cudaKernelSetAttributeForDevice) \
    X(cudaLibraryEnumerateKernels) X(cudaLibraryGetGlobal) X(cudaLibraryGetKernel) X(cudaLibraryGetKernelCount) \
    X(cudaLibraryGetManaged) X(cudaLibraryGetUnifiedFunction) X(cudaLibraryLoadData) X(cudaLibraryLoadFromFile) \
    X(cudaLibraryUnload) X(cudaLogsCurrent) X(cudaLogsDumpToFile) X(cudaLogsDumpToMemory) \
    X(cudaLogsRegisterCallback) X(cudaLogsUnregisterCallback) X(cudaMalloc3DArray) X(cudaMallocArray) \
    X(cudaMallocMipmappedArray) X(cudaMemDiscardAndPrefetchBatchAsync) X(cudaMemDiscardBatchAsync) \
    X(cudaMemGetDefaultMemPool) X(cudaMemGetMemPool) X(cudaMemPoolExportPointer) \
    X(cudaMemPoolExportToShareableHandle) X(cudaMemPoolImportFromShareableHandle) X(cudaMemPoolImportPointer) \
    X(cudaMemPrefetchBatchAsync) X(cudaMemRangeGetAttribute) X(cudaMemRangeGetAttributes) X(cudaMemSetMemPool) \
    X(cudaMemcpy2DArrayToArray) X(cudaMemcpy2DFromArray) X(cudaMemcpy2DFromArrayAsync) X(cudaMemcpy2DToArray) \
    X(cudaMemcpy2DToArrayAsync) X(cudaMemcpy3DBatchAsync) X(cudaMemcpy3DPeer) X(cudaMemcpy3DPeerAsync) \
    X(cudaMemcpyBatchAsync) X(cudaMipmappedArrayGetMemoryRequirements) X(cudaOccupancyMaxActiveClusters) \
    X(cudaOccupancyMaxPotentialClusterSize) X(cudaSignalExternalSemaphoresAsync) X(cudaWaitExternalSemaphoresAsync)

#define X(name) extern "C" __attribute__((weak)) int name() { return refuse(#name); }
KW_REFUSED(X)
#undef X

extern "C" {
// Texture and surface references are registered when an extension is loaded; using one is what fails.
void __cudaRegisterTexture() {}
void __cudaRegisterSurface() {}
}
