// moe_cpp.hpp - the few lines that make moe.h pleasant from C++: handles that end themselves, a
// status that becomes an exception, structs that start with their size. Copy it into your own
// program if it helps.
#pragma once

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "moe/moe.h"

namespace moe::cli {

// Any failure of this program; what() is the sentence to print.
struct Failure : std::runtime_error {
    explicit Failure(const std::string& sentence, moe_status code = MOE_ERROR_INVALID_ARGUMENT)
        : std::runtime_error(sentence), status(code) {}
    moe_status status;
};

// A file that is not what it must be.
[[noreturn]] inline void refuse_file(const std::string& path, const std::string& what,
                                     moe_status status = MOE_ERROR_IO) {
    throw Failure(path + ": " + what, status);
}

// The command line itself was wrong: exit code 2.
struct UsageFailure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws the library's own sentence. Call it on the thread that made the call: the last error is
// thread-local.
inline void check(moe_status status) {
    if (status == MOE_OK) return;
    const std::string sentence = moe_last_error();
    throw Failure(sentence.empty() ? moe_status_name(status) : sentence, status);
}

// A struct of moe.h, all zero but for its size.
template <class T>
T sized() {
    T value{};
    value.struct_size = sizeof(T);
    return value;
}

template <auto destroy>
struct Destroyer {
    template <class T>
    void operator()(T* handle) const {
        destroy(handle);
    }
};

using Runtime = std::unique_ptr<moe_runtime, Destroyer<moe_runtime_destroy>>;
using Checkpoint = std::unique_ptr<moe_checkpoint, Destroyer<moe_checkpoint_destroy>>;
using Plan = std::unique_ptr<moe_plan, Destroyer<moe_plan_destroy>>;
using Weights = std::unique_ptr<moe_weights, Destroyer<moe_weights_destroy>>;
using Workspace = std::unique_ptr<moe_workspace, Destroyer<moe_workspace_destroy>>;

// make<Plan>(moe_plan_create, runtime, &desc): the last argument, the handle's address, is added.
template <class Handle, class Create, class... Args>
Handle make(Create create, Args... args) {
    typename Handle::pointer raw = nullptr;
    check(create(args..., &raw));
    return Handle(raw);
}

inline moe_format format_by_name(const std::string& name) {
    moe_format format = sized<moe_format>();
    check(moe_format_by_name(name.c_str(), &format));
    return format;
}

inline std::string format_name(const moe_format& format) {
    auto info = sized<moe_format_info>();
    check(moe_format_get_info(&format, &info));
    return info.name;
}

// What a plan needs to know of a layer: the mathematics, and the format of each role it has.
struct LayerSource {
    moe_layer_desc desc = sized<moe_layer_desc>();
    std::array<moe_format, MOE_ROLE_COUNT> formats{};
    // Of single experts, index = role * n_experts + expert; type NONE: that of the role. Empty: no
    // expert has another format.
    std::vector<moe_format> expert_formats;

    LayerSource() {
        for (moe_format& format : formats) format.struct_size = sizeof(format);
    }
    // Index = role; NULL where the layer has nothing.
    std::array<const moe_format*, MOE_ROLE_COUNT> format_pointers() const {
        std::array<const moe_format*, MOE_ROLE_COUNT> pointers{};
        for (size_t role = 0; role < formats.size(); ++role) {
            if (formats[role].type != MOE_TYPE_NONE) pointers[role] = &formats[role];
        }
        return pointers;
    }
    std::vector<const moe_format*> expert_format_pointers() const {
        std::vector<const moe_format*> pointers(expert_formats.size());
        for (size_t i = 0; i < expert_formats.size(); ++i) {
            if (expert_formats[i].type != MOE_TYPE_NONE) pointers[i] = &expert_formats[i];
        }
        return pointers;
    }
};

}  // namespace moe::cli
