#pragma once
#include <kw_facade/tensor.h>
