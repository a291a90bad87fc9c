#pragma once
#include <kw_facade/types.h>
