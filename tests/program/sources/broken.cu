__global__ void nothing() {}

int main() {
  int count = undeclared_name;
  nothing<<<1, 1>>>();
  return count;
}
