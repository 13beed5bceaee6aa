// The list of targets, and how a broken promise ends.
#include "tests/fuzz/target.hpp"

#include <cstdio>
#include <cstdlib>
#include <new>

#include "tests/fuzz/targets.hpp"

namespace moe_fuzz {
namespace {

constexpr Target targets[] = {
    {"safetensors", run_safetensors, mutate_safetensors},
    {"index", run_index, mutate_index},
    {"config", run_config, mutate_config},
    {"gguf", run_gguf, mutate_gguf},
    {"model", run_model, mutate_model},
    {"quant_state", run_quant_state, mutate_quant_state},
    {"plan", run_plan, mutate_plan},
    {"packed", run_packed, mutate_packed},
};

}  // namespace

std::span<const Target> all_targets() {
    return targets;
}

const Target* find_target(std::string_view name) {
    for (const Target& target : targets)
        if (name == target.name) return &target;
    return nullptr;
}

void broken_promise(std::string_view what, std::string_view text) {
    std::fprintf(stderr, "broken promise: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
                 static_cast<int>(text.size()), text.data());
    std::abort();
}

bool survives(void (*call)(void*), void* context, std::string_view named) {
    try {
        call(context);
        return true;
    } catch (const moe::Error& error) {
        const std::string_view text = error.what();
        const moe_status status = error.status();
        promise(status == MOE_ERROR_CORRUPT_FILE || status == MOE_ERROR_UNSUPPORTED ||
                    status == MOE_ERROR_NOT_FOUND,
                "a status that no file should cause", text);
        promise(text.find(named) != text.npos, "the sentence does not name the file", text);
        for (const char c : text)
            promise(static_cast<unsigned char>(c) >= 0x20, "a control byte in the sentence", text);
        refused(text);
        return false;
    }
}

}  // namespace moe_fuzz
