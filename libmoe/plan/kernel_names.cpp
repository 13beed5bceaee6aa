#include "libmoe/plan/kernel_names.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "libmoe/base/fmt.hpp"
#include "libmoe/weights/device_weights.hpp"

namespace moe {
namespace {

struct KeptName {
    KeptName* next;
    char text[1];  // and as many more as it is long
};

// Callers keep names beyond their plan (moe.h), so each distinct one is kept once, outside of what
// handles allocate and give back, until the library is unloaded.
class KeptNames {
  public:
    ~KeptNames() {
        for (KeptName*& first : first_)
            while (first) std::free(std::exchange(first, first->next));
    }
    const char* keep(std::string_view text) {
        KeptName*& first = first_[std::hash<std::string_view>()(text) % std::size(first_)];
        std::lock_guard lock(mutex_);
        for (const KeptName* one = first; one; one = one->next)
            if (text == one->text) return one->text;
        auto* name = static_cast<KeptName*>(std::malloc(sizeof(KeptName) + text.size()));
        if (!name) throw std::bad_alloc();
        name->next = first;
        std::memcpy(name->text, text.data(), text.size());
        name->text[text.size()] = '\0';
        first = name;
        return name->text;
    }

  private:
    std::mutex mutex_;
    KeptName* first_[256] = {};  // by their hash
};

cuda::KernelName intern(std::string_view text) {
    static KeptNames names;
    return {names.keep(text)};
}

// A name while it is put together; the longest has less than a hundred characters.
class NameBuffer {
  public:
    void append(std::string_view text) {
        const size_t n = std::min(text.size(), sizeof text_ - size_);
        std::copy_n(text.data(), n, text_ + size_);
        size_ += n;
    }
    void append_word(std::string_view word) {
        if (word.empty()) return;
        if (size_ > 0) append("_");
        append(word);
    }
    std::string_view view() const { return {text_, size_}; }

  private:
    char text_[160];
    size_t size_ = 0;
};

}  // namespace

std::string_view weight_name(PackedType type) {
    switch (kind_of(type)) {
        case PackedType::none:
            return "any";
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
            return traits(type).name;
    }
}

cuda::KernelName kernel_name(const KernelWords& words, std::string_view weight,
                             std::string_view stage, std::string_view variant) {
    NameBuffer name;
    for (const std::string_view word :
         {words.architecture, weight, words.activation, words.family, stage, variant})
        name.append_word(word);
    return intern(name.view());
}

cuda::KernelName weight_of(const WeightsLayout& layout, moe_role role) {
    if (!layout.needs(role)) return intern("any");
    const moe_format& format = layout.formats[role];
    NameBuffer name;
    // Affine codes are blocks of ggml where they are packed alone.
    if (format.zero_point == MOE_ZERO_POINT_FLOAT && layout.device == MOE_DEVICE_CPU)
        name.append(fmt::format("int{}", format.bits));
    else
        name.append(weight_name(packed_type_of(format)));
    if (layout.interleaving(role)) name.append_word("x16");
    return intern(name.view());
}

cuda::KernelName weight_of_gate_up(const WeightsLayout& layout, moe_role gate, moe_role up) {
    const cuda::KernelName of_up = weight_of(layout, up);
    if (!layout.needs(gate)) return of_up;
    const cuda::KernelName of_gate = weight_of(layout, gate);
    if (packed_type_of(layout.formats[gate]) == packed_type_of(layout.formats[up]) &&
        of_gate.view() == of_up.view())
        return of_gate;
    NameBuffer both;
    both.append(of_gate.view());
    both.append("+");
    both.append(of_up.view());
    return intern(both.view());
}

// Where the text after a star does not match, the star takes one character more. Only the last star
// can need that, so the time is the product of both lengths at most, whatever a caller sends.
bool matches_glob(std::string_view name, std::string_view glob) {
    size_t n = 0, g = 0, after_star = 0, resume = 0;
    while (n < name.size()) {
        if (g < glob.size() && glob[g] == '*') {
            after_star = ++g;
            resume = n;
        } else if (g < glob.size() && glob[g] == name[n]) {
            ++g;
            ++n;
        } else if (after_star > 0) {
            g = after_star;
            n = ++resume;
        } else {
            return false;
        }
    }
    return glob.find_first_not_of('*', g) == std::string_view::npos;
}

}  // namespace moe
