#pragma once
#include <kw_facade/accessor.h>
