#pragma once
#include <kw_facade/dispatch.h>
