// Where the toolkit has no cuBLASLt: its handle, so that a program which only includes it compiles. Nothing is served.
#pragma once
#include <cublas_v2.h>

typedef struct cublasLtContext* cublasLtHandle_t;
