// A header that torch's CPU wheel leaves out: CMake writes it when torch is built with CUDA, and CUDAMacros.h wants it.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
