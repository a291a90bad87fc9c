#pragma once
#include <kw_facade/cuda_check.h>
