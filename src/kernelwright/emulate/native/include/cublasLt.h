// Where the toolkit has no cuBLASLt: the type that ATen's headers name. The real header wins where there is one.
#pragma once
#if __has_include_next(<cublasLt.h>)
#include_next <cublasLt.h>
#else
typedef struct cublasLtContext* cublasLtHandle_t;
#endif
