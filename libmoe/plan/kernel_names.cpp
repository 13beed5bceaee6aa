#include "libmoe/plan/kernel_names.hpp"

#include <mutex>
#include <set>
#include <string>

#include "libmoe/weights/device_weights.hpp"

namespace moe {
namespace {

// Callers keep names beyond their plan (moe.h), so each distinct one is kept once for ever.
cuda::KernelName intern(const std::string& text) {
    static std::mutex mutex;
    static std::set<std::string>* const names = new std::set<std::string>;
    std::lock_guard lock(mutex);
    return {names->insert(text).first->c_str()};
}

void append_word(std::string& name, std::string_view word) {
    if (word.empty()) return;
    if (!name.empty()) name += '_';
    name += word;
}

}  // namespace

std::string_view weight_name(PackedType type) {
    switch (kind_of(type)) {
#define MOE_NAME(type)     \
    case PackedType::type: \
        return #type;
        MOE_NAME(f32)
        MOE_NAME(f16)
        MOE_NAME(bf16)
        MOE_NAME(e4m3)
        MOE_NAME(nvfp4)
        MOE_NAME(mxfp4)
        MOE_NAME(kbit2)
        MOE_NAME(kbit3)
        MOE_NAME(kbit4)
        MOE_NAME(kbit5)
        MOE_NAME(kbit2_f32)
        MOE_NAME(kbit3_f32)
        MOE_NAME(kbit4_f32)
        MOE_NAME(kbit5_f32)
        MOE_NAME(q8_0)
        MOE_NAME(q4_k)
        MOE_NAME(q5_k)
        MOE_NAME(q2_k)
        MOE_NAME(q3_k)
        MOE_NAME(q6_k)
        MOE_NAME(iq4_xs)
        MOE_NAME(iq2_xxs)
        MOE_NAME(iq2_xs)
        MOE_NAME(iq3_xxs)
        MOE_NAME(iq3_s)
        MOE_NAME(q4_0)
        MOE_NAME(iq4_nl)
        MOE_NAME(q5_0)
        MOE_NAME(q4_1)
        MOE_NAME(q5_1)
#undef MOE_NAME
        case PackedType::grid_e4m3:
            return "fp8";
        case PackedType::grid_1:
            return "int1";
        case PackedType::grid_2:
            return "int2";
        case PackedType::grid_3:
            return "int3";
        case PackedType::grid_4:
            return "int4";
        case PackedType::grid_5:
            return "int5";
        case PackedType::grid_6:
            return "int6";
        case PackedType::grid_7:
            return "int7";
        case PackedType::grid_8:
            return "int8";
        case PackedType::grid_codebook:
            return "codebook4";
        default:
            return "any";
    }
}

cuda::KernelName kernel_name(const KernelWords& words, std::string_view weight,
                             std::string_view stage, std::string_view variant) {
    std::string name;
    for (const std::string_view word :
         {words.architecture, weight, words.activation, words.family, stage, variant})
        append_word(name, word);
    return intern(name);
}

cuda::KernelName weight_of(const WeightsLayout& layout, moe_role role) {
    if (!layout.needs(role)) return intern("any");
    return intern(std::string(weight_name(packed_type_of(layout.formats[role]))));
}

cuda::KernelName weight_of_gate_up(const WeightsLayout& layout, moe_role gate, moe_role up) {
    const cuda::KernelName of_up = weight_of(layout, up);
    if (!layout.needs(gate)) return of_up;
    const cuda::KernelName of_gate = weight_of(layout, gate);
    if (packed_type_of(layout.formats[gate]) == packed_type_of(layout.formats[up])) return of_gate;
    return intern(std::string(of_gate.view()) + "+" + std::string(of_up.view()));
}

bool matches_glob(std::string_view name, std::string_view glob) {
    const size_t star = glob.find('*');
    if (star == std::string_view::npos) return name == glob;
    if (name.substr(0, star) != glob.substr(0, star)) return false;
    const std::string_view after = glob.substr(star + 1);
    for (size_t begin = star; begin <= name.size(); ++begin)
        if (matches_glob(name.substr(begin), after)) return true;
    return false;
}

}  // namespace moe
