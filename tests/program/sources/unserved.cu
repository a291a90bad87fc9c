// Declared by cuBLAS, served by nobody here.
extern "C" int cublasStrsm_v2(void*);

int main() { return cublasStrsm_v2(nullptr); }
