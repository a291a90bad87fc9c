// One compile unit of libkw_torch.so: torch's headers cost more than our code, so files that need the same ones go together.
#include "torch_bridge.cpp"
#include "torch_checks.cpp"
#include "torch_rnn.cpp"
#include "torch_device.cpp"
