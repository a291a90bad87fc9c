#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void halves(const __half2* a, const __nv_bfloat162* b, __half2* c, __nv_bfloat162* d, float* e, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    c[i] = __hfma2(a[i], a[i], __float2half2_rn(0.5f));
    d[i] = __hfma2(b[i], b[i], __float2bfloat162_rn(0.5f));
    e[i] = __half2float(__low2half(a[i])) + __bfloat162float(__high2bfloat16(b[i])) + (__hlt(a[i].x, a[i].y) ? 1.f : 0.f);
}
