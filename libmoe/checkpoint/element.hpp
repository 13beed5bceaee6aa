// Element types as the two containers name them, with their sizes. Every type whose size is known
// is listed, readable by libmoe or not, because the containers' layout rules need the sizes of
// tensors that nobody asks for, too.
#pragma once

#include <cstdint>
#include <string_view>

#include "moe/moe.h"

namespace moe {

struct Element {
    const char* name;
    moe_type type;            // NONE when libmoe has no such type
    int32_t ggml_id;          // -1: a safetensors type
    uint32_t block_elements;  // elements that are stored together
    uint32_t block_bits;      // bits of such a block
};

// null when unknown.
const Element* safetensors_element(std::string_view name);
const Element* ggml_element(uint32_t id);
// Stands for every type of ggml that is not listed, such as those of forks. Its sizes are unknown.
extern const Element unknown_ggml_element;

// Scales that are powers of two: some tools have no type for them and write bytes.
inline bool is_e8m0(moe_type type) {
    return type == MOE_TYPE_F8_E8M0 || type == MOE_TYPE_U8;
}

}  // namespace moe
