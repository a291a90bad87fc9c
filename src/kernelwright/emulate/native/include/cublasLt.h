// Where the toolkit has no cuBLASLt: its handle, which ATen's headers name and programs make. No product is served. The
// real header wins where there is one.
#pragma once
#if __has_include_next(<cublasLt.h>)
#include_next <cublasLt.h>
#else
#include <cublas_v2.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cublasLtContext* cublasLtHandle_t;
cublasStatus_t cublasLtCreate(cublasLtHandle_t*);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t);

#ifdef __cplusplus
}
#endif
#endif
