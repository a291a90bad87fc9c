#pragma once
#include <kw_facade/tensor.h>
#include <kw_facade/factories.h>
#include <kw_facade/dispatch.h>
