// Where the toolkit has no cuBLASLt: its handle, so that a program which only makes one compiles. No product is served.
#pragma once
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
