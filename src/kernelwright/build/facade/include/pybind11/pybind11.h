#pragma once
#include <kw_facade/binding.h>
