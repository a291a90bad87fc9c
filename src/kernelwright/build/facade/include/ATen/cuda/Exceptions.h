#pragma once
#include <kw_facade/cuda_check.h>
#include <kw_facade/tensor.h>
