#include <cassert>
#include <cstdio>
struct Pair { int a; double b; };
typedef int (*Function)(int);
__device__ int plus(int x) { return x + 1; }
__device__ int twice(int x) { return x * 2; }
__device__ Function table[2] = {plus, twice};
__constant__ int steps[4] = {1, 10, 100, 1000};
__noinline__ __device__ Pair change(Pair p) { p.a++; p.b *= 2; return p; }
__noinline__ __device__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
extern "C" __global__ void ways(int* out, int n, Pair p) {
    int i = threadIdx.x, x = 0;
    switch (i % 7) {
        case 0: x = 3; break;
        case 1: x = steps[i & 3]; break;
        case 2: x = table[i & 1](i); break;
        case 3: x = factorial(i % 9); break;
        case 4: { Pair q = change(p); x = q.a + (int)q.b; break; }
        case 5: { int room[10]; for (int j = 0; j < 10; j++) room[j] = i * j; x = room[n % 10]; break; }
        default: x = -i;
    }
    assert(n >= 0);
    if (i == 2) printf("thread %d of %s: %5.2f %lld\n", i, "ways", p.b, (long long)n << 33);
    out[i] = x;
}
