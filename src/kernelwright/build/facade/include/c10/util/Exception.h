#pragma once
#include <kw_facade/exception.h>
