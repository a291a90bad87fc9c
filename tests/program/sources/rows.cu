// Adds up rows of a matrix, a thread a row: right, and slow.
#include <cstdio>

__device__ float at(const float* x, int row, int column, int columns) {
    return x[row * columns + column];  // read
}
__global__ void sums(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int column = 0; column < columns; column++) sum += at(x, row, column, columns);  // called
    y[row] = sum;
}

int main() {
    const int rows = 128, columns = 64;
    static float host[rows * columns];
    for (int i = 0; i < rows * columns; i++) host[i] = 1;
    float *x, *y;
    cudaMalloc(&x, sizeof host);
    cudaMalloc(&y, rows * sizeof(float));
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    for (int i = 0; i < 3; i++) sums<<<1, rows>>>(x, y, rows, columns);
    cudaMemcpy(host, y, rows * sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", host[5]);
    return 0;
}
