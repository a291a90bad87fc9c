// What the counted programs share: device arrays with contents that are the same on every machine, and a checked end.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <vector>

// n values of T in device memory: element i is value(i).
template <class T, class F>
T* made(size_t n, F value) {
    std::vector<T> host(n);
    for (size_t i = 0; i < n; i++) host[i] = value(i);
    T* device = nullptr;
    cudaMalloc(&device, n * sizeof(T));
    cudaMemcpy(device, host.data(), n * sizeof(T), cudaMemcpyHostToDevice);
    return device;
}

inline float* floats(size_t n) {
    return made<float>(n, [](size_t i) { return (float)(i * 2654435761u % 1024) / 1024; });
}

// A number that looks random, the same everywhere.
inline unsigned drawn(size_t i) {
    unsigned long long x = i * 6364136223846793005ull + 1442695040888963407ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return (unsigned)(x >> 32);
}

inline int ended() {
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
