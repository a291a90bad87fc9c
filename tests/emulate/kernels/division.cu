extern "C" __global__ void division(const long long* a, const long long* b, long long* q, unsigned long long* r, int* s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    q[i] = a[i] / b[i];
    r[i] = (unsigned long long)a[i] % (unsigned long long)b[i];
    s[i] = (int)a[i] / 7 + (int)a[i] % ((int)b[i] | 1);
}
