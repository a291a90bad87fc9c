#include <cstdio>

// Every conversion, flag and size that CUDA's printf knows; the host prints the same lines.
#define LINES(print)                                                                                            \
  print("%d|%5d|%-5d|%05d|%+d|% d|%.3d|%i\n", -42, 42, 42, 42, 42, 42, 7, -1);                                   \
  print("%u|%o|%#o|%x|%#x|%X|%#X|%08x\n", 4000000000u, 8u, 8u, 255u, 255u, 255u, 255u, 48879u);                  \
  print("%ld|%lld|%lu|%llu|%lx|%llX\n", -5000000000l, -5000000000ll, 5000000000ul, 5000000000ull, 255ul, 255ull); \
  print("%hd|%hu|%hx\n", (short)-3, (unsigned short)65535, (unsigned short)255);                                 \
  print("%f|%.2f|%10.3f|%-10.1f|%+.1f|%e|%E|%.3e\n", 3.14159, 2.718, 1.5, 2.25, 0.5, 12345.678, 0.00012, 9.99);   \
  print("%g|%G|%g|%g|%a|%A\n", 0.0001, 1e20, 100000.0, 1e6, 0.5, 255.0);                                          \
  print("%c%c|%5c|%s|%8s|%-8s|%.2s|%%\n", 'o', 'k', 'x', "text", "right", "left", "cut");                         \
  print("%*d|%-*d\n", 6, 42, 6, 42);                                                                             \
  print("%f %f %f\n", 1.0 / zero, -1.0 / zero, (double)1e-3f);                                                   \
  print("nothing\n")

__global__ void speak(double zero) {
  LINES(printf);
  printf("%zu|%.*f\n", (size_t)1, 2, 3.14159);
}

int main() {
  double zero = 0;
  speak<<<1, 1>>>(zero);
  cudaDeviceSynchronize();
  printf("----\n");
  LINES(printf);
}
