#include <cstdio>

static int __attribute__((noinline)) follow(const int* nowhere) {
  return *nowhere + 1;
}

int main(int argc, char** argv) {
  std::puts("before");
  std::fflush(stdout);
  return follow(reinterpret_cast<const int*>(argc - 1));
}
