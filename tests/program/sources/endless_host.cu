#include <cstdio>

static void wait_for_ever() {
  for (volatile int i = 0;; i = i + 1) {
  }
}

int main() {
  std::puts("waiting");
  std::fflush(stdout);
  wait_for_ever();
}
