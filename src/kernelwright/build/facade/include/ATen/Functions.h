#pragma once
#include <kw_facade/factories.h>
