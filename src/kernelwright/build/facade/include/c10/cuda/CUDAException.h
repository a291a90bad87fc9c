#pragma once
#include <kw_facade/cuda.h>
