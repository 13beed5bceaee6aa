// The tables of element types.
#include "libmoe/checkpoint/element.hpp"

#include <algorithm>
#include <iterator>

namespace moe {
namespace {

constexpr Element safetensors_elements[] = {
    {"BF16", MOE_TYPE_BF16, -1, 1, 16},       {"F32", MOE_TYPE_F32, -1, 1, 32},
    {"F8_E4M3", MOE_TYPE_F8_E4M3, -1, 1, 8},  {"U8", MOE_TYPE_U8, -1, 1, 8},
    {"F16", MOE_TYPE_F16, -1, 1, 16},         {"I32", MOE_TYPE_I32, -1, 1, 32},
    {"I64", MOE_TYPE_I64, -1, 1, 64},         {"I8", MOE_TYPE_I8, -1, 1, 8},
    {"F8_E8M0", MOE_TYPE_F8_E8M0, -1, 1, 8},  {"F8_E5M2", MOE_TYPE_F8_E5M2, -1, 1, 8},
    {"F64", MOE_TYPE_F64, -1, 1, 64},         {"BOOL", MOE_TYPE_NONE, -1, 1, 8},
    {"I16", MOE_TYPE_NONE, -1, 1, 16},        {"U16", MOE_TYPE_NONE, -1, 1, 16},
    {"U32", MOE_TYPE_NONE, -1, 1, 32},        {"U64", MOE_TYPE_NONE, -1, 1, 64},
    {"C64", MOE_TYPE_NONE, -1, 1, 64},        {"F8_E4M3FNUZ", MOE_TYPE_NONE, -1, 1, 8},
    {"F8_E5M2FNUZ", MOE_TYPE_NONE, -1, 1, 8}, {"F4", MOE_TYPE_E2M1, -1, 1, 4},
    {"F6_E2M3", MOE_TYPE_NONE, -1, 1, 6},     {"F6_E3M2", MOE_TYPE_NONE, -1, 1, 6},
};

constexpr Element block(const char* name, int32_t id, uint32_t elements, uint32_t bytes) {
    return {name, MOE_TYPE_GGUF, id, elements, bytes * 8};
}

constexpr Element ggml_elements[] = {
    {"F32", MOE_TYPE_F32, 0, 1, 32},    {"F16", MOE_TYPE_F16, 1, 1, 16},
    block("Q4_0", 2, 32, 18),           block("Q4_1", 3, 32, 20),
    block("Q5_0", 6, 32, 22),           block("Q5_1", 7, 32, 24),
    block("Q8_0", 8, 32, 34),           block("Q8_1", 9, 32, 36),
    block("Q2_K", 10, 256, 84),         block("Q3_K", 11, 256, 110),
    block("Q4_K", 12, 256, 144),        block("Q5_K", 13, 256, 176),
    block("Q6_K", 14, 256, 210),        block("Q8_K", 15, 256, 292),
    block("IQ2_XXS", 16, 256, 66),      block("IQ2_XS", 17, 256, 74),
    block("IQ3_XXS", 18, 256, 98),      block("IQ1_S", 19, 256, 50),
    block("IQ4_NL", 20, 32, 18),        block("IQ3_S", 21, 256, 110),
    block("IQ2_S", 22, 256, 82),        block("IQ4_XS", 23, 256, 136),
    {"I8", MOE_TYPE_I8, 24, 1, 8},      {"I16", MOE_TYPE_NONE, 25, 1, 16},
    {"I32", MOE_TYPE_I32, 26, 1, 32},   {"I64", MOE_TYPE_I64, 27, 1, 64},
    {"F64", MOE_TYPE_F64, 28, 1, 64},   block("IQ1_M", 29, 256, 56),
    {"BF16", MOE_TYPE_BF16, 30, 1, 16}, block("TQ1_0", 34, 256, 54),
    block("TQ2_0", 35, 256, 66),        block("MXFP4", 39, 32, 17),
    block("NVFP4", 40, 64, 36),
};

template <class Range, class Match>
const Element* find_element(const Range& range, Match match) {
    const auto it = std::find_if(std::begin(range), std::end(range), match);
    return it == std::end(range) ? nullptr : &*it;
}

}  // namespace

const Element unknown_ggml_element = {"an unknown type of ggml", MOE_TYPE_NONE, -1, 1, 0};

const Element* safetensors_element(std::string_view name) {
    return find_element(safetensors_elements, [&](const Element& e) { return name == e.name; });
}

const Element* ggml_element(uint32_t id) {
    return find_element(ggml_elements,
                        [&](const Element& e) { return static_cast<uint32_t>(e.ggml_id) == id; });
}

}  // namespace moe
