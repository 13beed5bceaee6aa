// What a program does with an open checkpoint, through moe.h: describes its layers, plans them,
// loads their weights where they are small and runs a token.
#pragma once

#include <string>
#include <string_view>

#include "moe/moe.h"

namespace moe_fuzz {

// Opens and uses path. A refusal is fine if it is one that a file may cause; `named` must then be
// in the sentence of moe_checkpoint_open.
void use_checkpoint(const std::string& path, moe_io io, std::string_view named);

}  // namespace moe_fuzz
