// Where the toolkit has no cuBLAS: the part of its interface that the emulated device serves.
//
// Why: NVIDIA ships cuBLAS apart from the compiler, and ATen's headers name its handle. The rule: names, values and
// signatures are cuBLAS 13's (its own header wins where there is one, and the same objects link); what is not here is
// not served.
#pragma once
#if __has_include_next(<cublas_v2.h>)
#include_next <cublas_v2.h>
#else
// Programs ask by these whether cuBLAS's header was included.
#define CUBLAS_V2_H_
#define CUBLAS_API_H_
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <library_types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cublasContext* cublasHandle_t;
typedef enum {
  CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum {
  CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3
} cublasMath_t;
typedef enum { CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 } cublasGemmAlgo_t;
typedef enum {
  CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69, CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71, CUBLAS_COMPUTE_32I = 72, CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef cudaDataType cublasDataType_t;

cublasStatus_t cublasCreate_v2(cublasHandle_t*);
cublasStatus_t cublasDestroy_v2(cublasHandle_t);
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int*);
cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t);
cublasStatus_t cublasGetStream_v2(cublasHandle_t, cudaStream_t*);
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t);
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t);
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t*);
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);
cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t*);
const char* cublasGetStatusName(cublasStatus_t);
const char* cublasGetStatusString(cublasStatus_t);
cublasStatus_t cublasSetVector(int, int, const void*, int, void*, int);
cublasStatus_t cublasGetVector(int, int, const void*, int, void*, int);
cublasStatus_t cublasSetMatrix(int, int, int, const void*, int, void*, int);
cublasStatus_t cublasGetMatrix(int, int, int, const void*, int, void*, int);

#define KW_CUBLAS_OF(letter, type)                                                                                     \
  cublasStatus_t cublas##letter##gemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,           \
                                         const type*, const type*, int, const type*, int, const type*, type*, int);    \
  cublasStatus_t cublas##letter##gemmStridedBatched(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int,     \
                                                    int, const type*, const type*, int, long long, const type*, int,   \
                                                    long long, const type*, type*, int, long long, int);               \
  cublasStatus_t cublas##letter##gemmBatched(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,       \
                                             const type*, const type* const*, int, const type* const*, int,            \
                                             const type*, type* const*, int, int);                                     \
  cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t, cublasOperation_t, int, int, const type*, const type*, int,    \
                                         const type*, int, const type*, type*, int);                                   \
  cublasStatus_t cublas##letter##axpy_v2(cublasHandle_t, int, const type*, const type*, int, type*, int);               \
  cublasStatus_t cublas##letter##scal_v2(cublasHandle_t, int, const type*, type*, int);                                 \
  cublasStatus_t cublas##letter##copy_v2(cublasHandle_t, int, const type*, int, type*, int);                            \
  cublasStatus_t cublas##letter##dot_v2(cublasHandle_t, int, const type*, int, const type*, int, type*);                \
  cublasStatus_t cublas##letter##nrm2_v2(cublasHandle_t, int, const type*, int, type*);                                 \
  cublasStatus_t cublas##letter##asum_v2(cublasHandle_t, int, const type*, int, type*);
KW_CUBLAS_OF(S, float)
KW_CUBLAS_OF(D, double)
#undef KW_CUBLAS_OF

cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                            const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                            cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                          const void*, const void*, cudaDataType, int, long long, const void*,
                                          cudaDataType, int, long long, const void*, void*, cudaDataType, int,
                                          long long, int, cublasComputeType_t, cublasGemmAlgo_t);

#ifdef __cplusplus
}
#endif

#define cublasCreate cublasCreate_v2
#define cublasDestroy cublasDestroy_v2
#define cublasGetVersion cublasGetVersion_v2
#define cublasSetStream cublasSetStream_v2
#define cublasGetStream cublasGetStream_v2
#define cublasSetWorkspace cublasSetWorkspace_v2
#define cublasSetPointerMode cublasSetPointerMode_v2
#define cublasGetPointerMode cublasGetPointerMode_v2
#define cublasSgemm cublasSgemm_v2
#define cublasDgemm cublasDgemm_v2
#define cublasSgemv cublasSgemv_v2
#define cublasDgemv cublasDgemv_v2
#define cublasSaxpy cublasSaxpy_v2
#define cublasDaxpy cublasDaxpy_v2
#define cublasSscal cublasSscal_v2
#define cublasDscal cublasDscal_v2
#define cublasScopy cublasScopy_v2
#define cublasDcopy cublasDcopy_v2
#define cublasSdot cublasSdot_v2
#define cublasDdot cublasDdot_v2
#define cublasSnrm2 cublasSnrm2_v2
#define cublasDnrm2 cublasDnrm2_v2
#define cublasSasum cublasSasum_v2
#define cublasDasum cublasDasum_v2
#endif
