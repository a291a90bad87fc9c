// Where the toolkit has no cuSPARSE: the two types that ATen's headers name. The real header wins where there is one.
#pragma once
#if __has_include_next(<cusparse.h>)
#include_next <cusparse.h>
#else
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
#endif
