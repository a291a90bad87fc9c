// Where the toolkit has no cuSOLVER: its status type, which ATen's headers name. The real header wins where there is one.
#pragma once
#if __has_include_next(<cusolver_common.h>)
#include_next <cusolver_common.h>
#else
typedef enum { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
#endif
