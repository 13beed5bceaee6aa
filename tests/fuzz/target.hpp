// One thing that is fed with hostile bytes: how it is run, and how its input is changed so that
// most of it stays what a reader wants. The driver is libFuzzer (fuzzer.cpp) or a loop over files
// (replay.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "libmoe/base/error.hpp"
#include "tests/fuzz/random.hpp"

namespace moe_fuzz {

struct Target {
    const char* name;
    // Aborts when a promise of the library is broken; crashes and leaks are the sanitizers' to see.
    void (*run)(std::string_view input);
    std::string (*mutate)(std::string_view input, Random& random);
};

std::span<const Target> all_targets();
const Target* find_target(std::string_view name);

// Changes bytes without knowing what they mean: libFuzzer's own mutations, or the replay's.
void mutate_bytes(std::string& bytes, Random& random);

// Ends the process, with the input left to the driver.
[[noreturn]] void broken_promise(std::string_view what, std::string_view text);
inline void promise(bool holds, std::string_view what, std::string_view text = {}) {
    if (!holds) broken_promise(what, text);
}

// Called with every sentence of a refusal, if the driver wants to know.
inline void (*on_refusal)(std::string_view sentence) = nullptr;
inline void refused(std::string_view sentence) {
    if (on_refusal) on_refusal(sentence);
}

// A reader may refuse a file with these statuses and a sentence that has `named` in it; anything
// else is a broken promise. True when it refused nothing.
bool survives(void (*call)(void*), void* context, std::string_view named);
template <class Call>
bool survives(Call& call, std::string_view named) {
    return survives([](void* context) { (*static_cast<Call*>(context))(); }, &call, named);
}

}  // namespace moe_fuzz
