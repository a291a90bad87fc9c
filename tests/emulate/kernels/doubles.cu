__noinline__ __device__ double series(double x, int n) { double s = 0; for (int i = 0; i < n; i++) s = s * x + sin(x * i); return s; }
extern "C" __global__ void doubles(const double* x, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = exp(x[i]) + sqrt(fabs(x[i])) / (1.0 + x[i] * x[i]) + series(x[i], 5) + pow(fabs(x[i]), 1.5);
}
