// Prints its arguments and its input, runs a kernel from a global's constructor and another from an atexit handler.
#include <cstdio>
#include <cstdlib>

__device__ int counter;

__global__ void add(int amount) { atomicAdd(&counter, amount); }

static int count() {
  int value = -1;
  cudaMemcpyFromSymbol(&value, counter, sizeof value);
  return value;
}

struct Early {
  Early() { add<<<1, 32>>>(1); }
  ~Early() { std::printf("destroyed at %d\n", count()); }
} early;

static void leaving() {
  add<<<1, 1>>>(1000);
  std::printf("leaving at %d\n", count());
}

static void stop(int status) { std::exit(status); }

int main(int argc, char** argv) {
  std::atexit(leaving);
  for (int i = 1; i < argc; i++) std::printf("[%s]\n", argv[i]);
  char word[64];
  while (std::scanf("%63s", word) == 1) std::printf("read %s\n", word);
  std::printf("began at %d\n", count());
  stop(argc);
}
