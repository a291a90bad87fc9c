extern "C" __global__ void approximations(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __expf(x[i]) + __sinf(x[i]) + __cosf(x[i]) + __logf(fabsf(x[i]) + 1) + __fdividef(x[i], 3.f) + tanhf(x[i]) + rsqrtf(fabsf(x[i]) + 1) + __powf(fabsf(x[i]) + .5f, 1.3f) + erff(x[i]) + sinf(x[i] * 1000) + log1pf(fabsf(x[i]));
}
