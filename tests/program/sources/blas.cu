// Two products by cuBLAS compared with plain loops; the second reads past its operand.
#include <cublas_v2.h>
#include <cstdio>
#include <vector>

int main() {
  const int m = 3, n = 4, k = 5;
  std::vector<float> a(m * k), b(n * k), c(m * n, 1.0f), got(m * n);
  for (int i = 0; i < m * k; i++) a[i] = float(i);
  for (int i = 0; i < n * k; i++) b[i] = float(i % 7 - 3);
  float *da, *db, *dc;
  cudaMalloc(&da, m * k * sizeof(float));
  cudaMalloc(&db, n * k * sizeof(float));
  cudaMalloc(&dc, m * n * sizeof(float));
  cudaMemcpy(db, b.data(), n * k * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(dc, c.data(), m * n * sizeof(float), cudaMemcpyHostToDevice);
  cublasHandle_t handle;
  cublasCreate(&handle);
  cublasSetMatrix(m, k, sizeof(float), a.data(), m, da, m);
  const float alpha = 2, beta = 3;
  cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &alpha, da, m, db, n, &beta, dc, m);
  cudaMemcpy(got.data(), dc, m * n * sizeof(float), cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int l = 0; l < k; l++) sum += a[l * m + i] * b[l * n + j];
      wrong += got[j * m + i] != alpha * sum + beta;
    }
  std::printf("status %d, %d wrong\n", int(status), wrong);
  status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k + 1, &alpha, da, m, db, k + 1, &beta, dc, m);
  std::printf("status %d\n", int(status));
  cublasDestroy(handle);
  return 0;
}
