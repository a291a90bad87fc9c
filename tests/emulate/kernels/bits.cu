extern "C" __global__ void bits(const unsigned* a, const unsigned long long* b, unsigned* c) {
    int i = threadIdx.x;
    unsigned x = a[i];
    c[i] = __popc(x) + __clz(x) * 3 + __brev(x) + __ffs(x) + __byte_perm(x, ~x, 0x2615) + __funnelshift_l(x, x * 3, i) +
           __dp4a((int)x, 0x01020304, 5) + (unsigned)(__umul64hi(b[i], b[i] ^ 7) >> 3) + __popcll(b[i]) + __mulhi((int)x, 77777) +
           (unsigned)__float2ll_rn(__uint_as_float(0x4f000000 | (x & 0xff))) + __usad(x, 5, 9) + __vadd2(x, x >> 3) + __vabsdiffu4(x, 7u);
}
