// In place of libmoe/cpu/tile_permission.cpp: emulated tiles need no processor.
#include "libmoe/cpu/tile_permission.hpp"

namespace moe::cpu {

bool has_tiles() {
    return true;
}

bool may_use_tiles() {
    return true;
}

}  // namespace moe::cpu
