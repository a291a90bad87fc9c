// Where the toolkit has no cuSOLVER: the types that ATen's headers name. The real header wins where there is one.
#pragma once
#if __has_include_next(<cusolverDn.h>)
#include_next <cusolverDn.h>
#else
#include <cusolver_common.h>
typedef struct cusolverDnContext* cusolverDnHandle_t;
#endif
