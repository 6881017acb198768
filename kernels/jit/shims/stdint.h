// <stdint.h>: the global names of <cstdint>.
#pragma once

#include <cstdint>
