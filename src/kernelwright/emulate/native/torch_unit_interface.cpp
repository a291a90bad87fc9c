// The other compile unit of libkw_torch.so, compiled beside torch_unit_operators.cpp.
#include "torch_python.cpp"
#include "torch_tensor.cpp"
#include "torch_call.cpp"
#include "torch_cuda.cpp"
