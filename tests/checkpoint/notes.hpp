// What the library logs when a checkpoint is opened, without its line for every checkpoint.
#pragma once

#include "libmoe/base/runtime.hpp"
#include "tests/checkpoint/models.hpp"

namespace moe::test {

inline std::vector<std::string> notes_of(const std::string& path) {
    std::vector<std::string> notes;
    moe_runtime_desc desc{};
    desc.struct_size = sizeof desc;
    desc.n_threads = 1;
    desc.log_level = MOE_LOG_INFO;
    desc.log = [](moe_log_level, const char* message, void* out) {
        static_cast<std::vector<std::string>*>(out)->emplace_back(message);
    };
    desc.log_user_data = &notes;
    moe_runtime* runtime = nullptr;
    EXPECT_EQ(moe_runtime_create(&desc, &runtime), MOE_OK);
    Handle(moe_checkpoint::open(runtime, path.c_str(), {}));
    moe_runtime_destroy(runtime);
    return notes;
}

}  // namespace moe::test
