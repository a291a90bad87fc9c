// cuBLAS as candidates and programs use it: general products of matrices, and vector operations beside them, on the host.
//
// Why: programs compare their own kernels with cuBLAS, or need it for one step. The rule: column-major as cuBLAS, sums
// in double and rounded once, so no worse than any order of float sums; every operand must lie in device memory, whole.
// Types are ABI-equal to cublas_api.h's and written out here, so that no header of it is needed.
#include "cudart_state.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>
#include <vector>

namespace {

enum Status { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15 };

struct Handle { cudaStream_t stream; int pointer_mode, math_mode; };

// Whether `bytes` from `address` are device memory; refuses with the function's name and the numbers where not.
Status within(const char* function, const char* operand, const void* address, uint64_t bytes) {
  if (bytes == 0) return kSuccess;
  kw_allocation found;
  int near = kw_find(reinterpret_cast<uint64_t>(address), &found);
  bool device = near == 1 && found.kind != KW_FREED && found.kind != KW_HOST;
  uint64_t offset = device ? reinterpret_cast<uint64_t>(address) - found.base : 0;
  if (device && bytes <= found.bytes - offset) return kSuccess;
  char text[256];
  if (device)
    std::snprintf(text, sizeof text, "%s: %s is %llu bytes into an allocation of %llu bytes, and %llu bytes are used",
                  function, operand, (unsigned long long)offset, (unsigned long long)found.bytes, (unsigned long long)bytes);
  else
    std::snprintf(text, sizeof text, "%s: %s is no device memory", function, operand);
  kw::refuse(cudaErrorIllegalAddress, device ? "memory.out-of-bounds" : "interface.host-memory", text);
  return kExecutionFailed;
}

// Whether an element is memory that nobody wrote, by the pattern that fresh device memory holds.
bool unwritten(const void* at, size_t width) {
  const auto* half = static_cast<const uint16_t*>(at);
  for (size_t i = 0; i < width / 2; i++)
    if (half[i] != KW_POISON16) return false;
  return true;
}

// For the record; the product is made all the same, as a GPU would.
void tell_unwritten(const char* function, const char* operand, int row, int column) {
  char text[256];
  std::snprintf(text, sizeof text, "%s reads %s where nobody wrote before: first row %d, column %d of what is stored", function, operand, row, column);
  const kw_callbacks* callbacks = kw_get_callbacks();
  if (callbacks && callbacks->refusal) callbacks->refusal(nullptr, 0, "memory.uninitialised", text);
}

template <class T>
void check_written(const char* function, const char* operand, const T* a, int rows, int columns, int stride) {
  for (int column = 0; column < columns; column++)
    for (int row = 0; row < rows; row++)
      if (unwritten(a + size_t(column) * stride + row, sizeof(T))) return tell_unwritten(function, operand, row, column);
}

float widened(float x) { return x; }
double widened(double x) { return x; }
float widened(__half x) { return __half2float(x); }
float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
void narrow(double x, float* to) { *to = float(x); }
void narrow(double x, double* to) { *to = x; }
void narrow(double x, __half* to) { *to = __float2half_rn(float(x)); }
void narrow(double x, __nv_bfloat16* to) { *to = __float2bfloat16_rn(float(x)); }

template <class T>
auto packed(const T* a, bool transposed, int rows, int columns, int stride) {
  using W = decltype(widened(T()));
  std::vector<W> made(size_t(rows) * columns);
  for (int column = 0; column < columns; column++)
    for (int row = 0; row < rows; row++)
      made[size_t(column) * rows + row] = widened(transposed ? a[size_t(row) * stride + column] : a[size_t(column) * stride + row]);
  return made;
}

uint64_t extent(int rows, int columns, int stride, size_t width) {
  return rows && columns ? (uint64_t(columns - 1) * stride + rows) * width : 0;
}

struct Shape { const char* function; int ta, tb, m, n, k; };

template <class A, class B, class C>
Status gemm(const Shape& s, double alpha, const A* a, int lda, const B* b, int ldb, double beta, C* c, int ldc) {
  if (s.m < 0 || s.n < 0 || s.k < 0 || ldc < std::max(1, s.m) || lda < std::max(1, s.ta ? s.k : s.m) || ldb < std::max(1, s.tb ? s.n : s.k))
    return kInvalidValue;
  if (s.m == 0 || s.n == 0) return kSuccess;
  if (kw_sticky_error()) return kExecutionFailed;
  Status fits = within(s.function, "A", a, s.ta ? extent(s.k, s.m, lda, sizeof(A)) : extent(s.m, s.k, lda, sizeof(A)));
  if (fits == kSuccess) fits = within(s.function, "B", b, s.tb ? extent(s.n, s.k, ldb, sizeof(B)) : extent(s.k, s.n, ldb, sizeof(B)));
  if (fits == kSuccess) fits = within(s.function, "C", c, extent(s.m, s.n, ldc, sizeof(C)));
  if (fits != kSuccess) return fits;
  if (s.k && alpha != 0) {
    check_written(s.function, "A", a, s.ta ? s.k : s.m, s.ta ? s.m : s.k, lda);
    check_written(s.function, "B", b, s.tb ? s.n : s.k, s.tb ? s.k : s.n, ldb);
  }
  auto left = packed(a, s.ta, s.m, s.k, lda);
  std::vector<double> column(s.m);
  for (int j = 0; j < s.n; j++) {
    std::fill(column.begin(), column.end(), 0.0);
    for (int l = 0; l < s.k; l++) {
      double factor = widened(s.tb ? b[size_t(l) * ldb + j] : b[size_t(j) * ldb + l]);
      const auto* from = left.data() + size_t(l) * s.m;
      for (int i = 0; i < s.m; i++) column[i] += double(from[i]) * factor;
    }
    C* to = c + size_t(j) * ldc;
    // beta 0 leaves C unread, whatever it holds.
    for (int i = 0; i < s.m; i++) narrow(alpha * column[i] + (beta == 0 ? 0.0 : beta * widened(to[i])), to + i);
  }
  return kSuccess;
}

template <class T>
Status gemv(const char* function, int trans, int m, int n, double alpha, const T* a, int lda, const T* x, int incx, double beta, T* y, int incy) {
  int rows = trans ? n : m, columns = trans ? m : n;
  if (incx <= 0 || incy <= 0) return kNotSupported;
  Status fits = within(function, "A", a, extent(m, n, lda, sizeof(T)));
  if (fits == kSuccess) fits = within(function, "x", x, (uint64_t(columns - 1) * incx + 1) * sizeof(T));
  if (fits == kSuccess) fits = within(function, "y", y, (uint64_t(rows - 1) * incy + 1) * sizeof(T));
  if (fits != kSuccess) return fits;
  for (int i = 0; i < rows; i++) {
    double sum = 0;
    for (int j = 0; j < columns; j++) sum += double(trans ? a[size_t(i) * lda + j] : a[size_t(j) * lda + i]) * x[size_t(j) * incx];
    T* to = y + size_t(i) * incy;
    *to = T(alpha * sum + (beta == 0 ? 0.0 : beta * *to));
  }
  return kSuccess;
}

template <class T>
Status vectors(const char* function, int n, const T* x, int incx, const T* y, int incy) {
  if (incx <= 0 || incy <= 0) return kNotSupported;
  if (n <= 0) return kSuccess;
  if (kw_sticky_error()) return kExecutionFailed;
  Status fits = within(function, "x", x, (uint64_t(n - 1) * incx + 1) * sizeof(T));
  return fits == kSuccess && y ? within(function, "y", y, (uint64_t(n - 1) * incy + 1) * sizeof(T)) : fits;
}

// Calls `run` with a pointer of the type that `type` names.
template <class P, class F>
Status typed(cudaDataType type, P* pointer, F run) {
  constexpr bool is_const = std::is_const_v<P>;
  auto as = [&](auto tag) { using T = decltype(tag); return reinterpret_cast<std::conditional_t<is_const, const T, T>*>(pointer); };
  switch (type) {
    case CUDA_R_32F: return run(as(float()));
    case CUDA_R_64F: return run(as(double()));
    case CUDA_R_16F: return run(as(__half()));
    case CUDA_R_16BF: return run(as(__nv_bfloat16()));
    default: return kNotSupported;
  }
}

size_t width(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

// The scalars are of the type in which it is computed.
double scalar(const void* at, int compute) {
  if (compute == 70 || compute == 71) return *static_cast<const double*>(at);
  if (compute == 64 || compute == 65) return __half2float(*static_cast<const __half*>(at));
  return *static_cast<const float*>(at);
}

cudaError_t rows(void* to, int to_stride, const void* from, int from_stride, int size, int rows, int columns, cudaMemcpyKind kind) {
  return cudaMemcpy2D(to, size_t(to_stride) * size, from, size_t(from_stride) * size, size_t(rows) * size, columns, kind);
}

const struct { int code; const char* name; const char* sentence; } kStatuses[] = {
    {0, "CUBLAS_STATUS_SUCCESS", "success"}, {1, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {3, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {7, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed to the function"},
    {13, "CUBLAS_STATUS_EXECUTION_FAILED", "the GPU program failed to execute"},
    {14, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {15, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality requested is not supported"}};

}  // namespace

extern "C" {

int cublasCreate_v2(Handle** out) { return *out = new Handle{}, kSuccess; }
int cublasDestroy_v2(Handle* handle) { return delete handle, kSuccess; }
// at::cuda::getCurrentCUDABlasHandle(): one for the process, on PyTorch's current stream.
Handle* kw_blas_handle(cudaStream_t stream) {
  static auto* kept = new Handle{};
  kept->stream = stream;
  return kept;
}
int cublasLtCreate(Handle** out) { return *out = new Handle{}, kSuccess; }
int cublasLtDestroy(Handle* handle) { return delete handle, kSuccess; }
int cublasGetVersion_v2(Handle*, int* version) { return *version = 130000, kSuccess; }
int cublasSetStream_v2(Handle* handle, cudaStream_t stream) { return handle->stream = stream, kSuccess; }
int cublasGetStream_v2(Handle* handle, cudaStream_t* stream) { return *stream = handle->stream, kSuccess; }
int cublasSetWorkspace_v2(Handle*, void*, size_t) { return kSuccess; }
int cublasSetPointerMode_v2(Handle* handle, int mode) { return handle->pointer_mode = mode, kSuccess; }
int cublasGetPointerMode_v2(Handle* handle, int* mode) { return *mode = handle->pointer_mode, kSuccess; }
int cublasSetMathMode(Handle* handle, int mode) { return handle->math_mode = mode, kSuccess; }
int cublasGetMathMode(Handle* handle, int* mode) { return *mode = handle->math_mode, kSuccess; }
const char* cublasGetStatusName(int status) {
  for (const auto& known : kStatuses)
    if (known.code == status) return known.name;
  return "CUBLAS_STATUS_UNKNOWN";
}
const char* cublasGetStatusString(int status) {
  for (const auto& known : kStatuses)
    if (known.code == status) return known.sentence;
  return "unknown status";
}
int cublasSetVector(int n, int size, const void* x, int incx, void* y, int incy) {
  return rows(y, incy, x, incx, size, 1, n, cudaMemcpyHostToDevice) == cudaSuccess ? kSuccess : kInvalidValue;
}
int cublasGetVector(int n, int size, const void* x, int incx, void* y, int incy) {
  return rows(y, incy, x, incx, size, 1, n, cudaMemcpyDeviceToHost) == cudaSuccess ? kSuccess : kInvalidValue;
}
int cublasSetMatrix(int m, int n, int size, const void* a, int lda, void* b, int ldb) {
  return rows(b, ldb, a, lda, size, m, n, cudaMemcpyHostToDevice) == cudaSuccess ? kSuccess : kInvalidValue;
}
int cublasGetMatrix(int m, int n, int size, const void* a, int lda, void* b, int ldb) {
  return rows(b, ldb, a, lda, size, m, n, cudaMemcpyDeviceToHost) == cudaSuccess ? kSuccess : kInvalidValue;
}

#define KW_OF(L, T)                                                                                                     \
  int cublas##L##gemm_v2(Handle*, int ta, int tb, int m, int n, int k, const T* alpha, const T* a, int lda, const T* b,  \
                         int ldb, const T* beta, T* c, int ldc) {                                                       \
    return gemm({"cublas" #L "gemm", ta, tb, m, n, k}, *alpha, a, lda, b, ldb, *beta, c, ldc);                          \
  }                                                                                                                     \
  int cublas##L##gemmStridedBatched(Handle*, int ta, int tb, int m, int n, int k, const T* alpha, const T* a, int lda,   \
                                    long long sa, const T* b, int ldb, long long sb, const T* beta, T* c, int ldc,      \
                                    long long sc, int count) {                                                          \
    Status status = kSuccess;                                                                                           \
    for (int i = 0; i < count && status == kSuccess; i++)                                                               \
      status = gemm({"cublas" #L "gemmStridedBatched", ta, tb, m, n, k}, *alpha, a + i * sa, lda, b + i * sb, ldb,      \
                    *beta, c + i * sc, ldc);                                                                            \
    return status;                                                                                                      \
  }                                                                                                                     \
  int cublas##L##gemmBatched(Handle*, int ta, int tb, int m, int n, int k, const T* alpha, const T* const* a, int lda,   \
                             const T* const* b, int ldb, const T* beta, T* const* c, int ldc, int count) {              \
    Status status = within("cublas" #L "gemmBatched", "the array of A", a, count * sizeof *a);                          \
    for (int i = 0; i < count && status == kSuccess; i++)                                                               \
      status = gemm({"cublas" #L "gemmBatched", ta, tb, m, n, k}, *alpha, a[i], lda, b[i], ldb, *beta, c[i], ldc);      \
    return status;                                                                                                      \
  }                                                                                                                     \
  int cublas##L##gemv_v2(Handle*, int trans, int m, int n, const T* alpha, const T* a, int lda, const T* x, int incx,    \
                         const T* beta, T* y, int incy) {                                                               \
    return gemv("cublas" #L "gemv", trans, m, n, *alpha, a, lda, x, incx, *beta, y, incy);                              \
  }                                                                                                                     \
  int cublas##L##axpy_v2(Handle*, int n, const T* alpha, const T* x, int incx, T* y, int incy) {                         \
    Status status = vectors("cublas" #L "axpy", n, x, incx, y, incy);                                                   \
    for (int i = 0; i < n && status == kSuccess; i++) y[size_t(i) * incy] += *alpha * x[size_t(i) * incx];              \
    return status;                                                                                                      \
  }                                                                                                                     \
  int cublas##L##scal_v2(Handle*, int n, const T* alpha, T* x, int incx) {                                               \
    Status status = vectors<T>("cublas" #L "scal", n, x, incx, nullptr, 1);                                             \
    for (int i = 0; i < n && status == kSuccess; i++) x[size_t(i) * incx] *= *alpha;                                    \
    return status;                                                                                                      \
  }                                                                                                                     \
  int cublas##L##copy_v2(Handle*, int n, const T* x, int incx, T* y, int incy) {                                         \
    Status status = vectors("cublas" #L "copy", n, x, incx, y, incy);                                                   \
    for (int i = 0; i < n && status == kSuccess; i++) y[size_t(i) * incy] = x[size_t(i) * incx];                        \
    return status;                                                                                                      \
  }                                                                                                                     \
  int cublas##L##dot_v2(Handle*, int n, const T* x, int incx, const T* y, int incy, T* out) {                            \
    Status status = vectors("cublas" #L "dot", n, x, incx, y, incy);                                                    \
    double sum = 0;                                                                                                     \
    for (int i = 0; i < n && status == kSuccess; i++) sum += double(x[size_t(i) * incx]) * y[size_t(i) * incy];         \
    return *out = T(sum), status;                                                                                       \
  }                                                                                                                     \
  int cublas##L##nrm2_v2(Handle*, int n, const T* x, int incx, T* out) {                                                 \
    Status status = vectors<T>("cublas" #L "nrm2", n, x, incx, nullptr, 1);                                             \
    double sum = 0;                                                                                                     \
    for (int i = 0; i < n && status == kSuccess; i++) sum += double(x[size_t(i) * incx]) * x[size_t(i) * incx];         \
    return *out = T(std::sqrt(sum)), status;                                                                            \
  }                                                                                                                     \
  int cublas##L##asum_v2(Handle*, int n, const T* x, int incx, T* out) {                                                 \
    Status status = vectors<T>("cublas" #L "asum", n, x, incx, nullptr, 1);                                             \
    double sum = 0;                                                                                                     \
    for (int i = 0; i < n && status == kSuccess; i++) sum += std::fabs(double(x[size_t(i) * incx]));                    \
    return *out = T(sum), status;                                                                                       \
  }
KW_OF(S, float)
KW_OF(D, double)

int cublasGemmStridedBatchedEx(Handle*, int ta, int tb, int m, int n, int k, const void* alpha, const void* a,
                               cudaDataType type_a, int lda, long long sa, const void* b, cudaDataType type_b, int ldb,
                               long long sb, const void* beta, void* c, cudaDataType type_c, int ldc, long long sc,
                               int count, int compute, int) {
  if (compute == 72 || compute == 73) return kNotSupported;
  Status status = kSuccess;
  for (int i = 0; i < count && status == kSuccess; i++) {
    const char* at_a = static_cast<const char*>(a) + i * sa * (long long)width(type_a);
    const char* at_b = static_cast<const char*>(b) + i * sb * (long long)width(type_b);
    char* at_c = static_cast<char*>(c) + i * sc * (long long)width(type_c);
    status = typed(type_a, at_a, [&](auto* x) {
      return typed(type_b, at_b, [&](auto* y) {
        return typed(type_c, at_c, [&](auto* z) {
          return gemm({"cublasGemmEx", ta, tb, m, n, k}, scalar(alpha, compute), x, lda, y, ldb, scalar(beta, compute), z, ldc);
        });
      });
    });
  }
  return status;
}

int cublasGemmEx(Handle* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a,
                 cudaDataType type_a, int lda, const void* b, cudaDataType type_b, int ldb, const void* beta, void* c,
                 cudaDataType type_c, int ldc, int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c,
                                    type_c, ldc, 0, 1, compute, algorithm);
}

}  // extern "C"
