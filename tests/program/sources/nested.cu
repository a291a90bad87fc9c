__global__ void inner(int* out) { out[threadIdx.x] = 1; }

__global__ void outer(int* out) {
  inner<<<1, 32>>>(out);
}

int main() {
  int* out;
  cudaMalloc(&out, 128);
  outer<<<1, 1>>>(out);
}
