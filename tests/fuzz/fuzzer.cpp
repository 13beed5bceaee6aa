// libFuzzer's entry points. The first argument is the target's name.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/target.hpp"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace moe_fuzz {
namespace {

const Target* target = nullptr;
constexpr size_t most_growth = 64;

}  // namespace

void mutate_bytes(std::string& bytes, Random&) {
    const size_t size = bytes.size();
    bytes.resize(size + most_growth);
    bytes.resize(
        LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size, size + most_growth));
}

}  // namespace moe_fuzz

using namespace moe_fuzz;

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    target = *argc > 1 ? find_target((*argv)[1]) : nullptr;
    if (!target) {
        std::fprintf(stderr, "the first argument must be a target:");
        for (const Target& t : all_targets()) std::fprintf(stderr, " %s", t.name);
        std::fprintf(stderr, "\n");
        std::exit(2);
    }
    // The rest is libFuzzer's.
    (*argv)[1] = (*argv)[0];
    ++*argv;
    --*argc;
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    target->run({reinterpret_cast<const char*>(data), size});
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most,
                                          unsigned int seed) {
    Random random(seed);
    const std::string changed = target->mutate({reinterpret_cast<const char*>(data), size}, random);
    const size_t n = std::min(changed.size(), most);
    std::memcpy(data, changed.data(), n);
    return n;
}
