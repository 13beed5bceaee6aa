// A moe_allocator that counts, checks every release against its request, and can refuse the n-th
// request.
#pragma once

#include <cstdlib>
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/support/api.hpp"

namespace moe_test {

class TestAllocator {
  public:
    TestAllocator() = default;
    TestAllocator(const TestAllocator&) = delete;
    ~TestAllocator() {
        EXPECT_EQ(live_.size(), 0u) << "blocks that were never released";
        EXPECT_EQ(n_wrong_, 0) << "releases that are not as the request was";
    }

    moe_allocator table() {
        auto table = sized<moe_allocator>();
        table.allocate = [](uint64_t bytes, uint64_t alignment, moe_space space, void*,
                            void* self) -> void* {
            return static_cast<TestAllocator*>(self)->take(bytes, alignment, space);
        };
        table.release = [](void* memory, uint64_t bytes, uint64_t alignment, moe_space space, void*,
                           void* self) {
            static_cast<TestAllocator*>(self)->give_back(memory, bytes, alignment, space);
        };
        table.user_data = this;
        return table;
    }
    Runtime runtime(int32_t n_threads) {
        const moe_allocator allocator = table();
        auto desc = sized<moe_runtime_desc>();
        desc.n_threads = n_threads;
        desc.allocator = &allocator;
        moe_runtime* runtime = nullptr;
        EXPECT_MOE_OK(moe_runtime_create(&desc, &runtime));
        return Runtime(runtime);
    }

    // The n-th request from now on fails, once; 1 is the next. 0: none.
    void refuse(int64_t n) {
        const std::lock_guard lock(mutex_);
        refuse_ = n;
    }
    bool refused() const { return refuse_ < 0; }
    int64_t calls() const { return calls_; }
    uint64_t live_bytes() const { return live_bytes_; }
    uint64_t smallest() const { return smallest_; }

  private:
    struct Block {
        uint64_t bytes, alignment;
        moe_space space;
    };

    void* take(uint64_t bytes, uint64_t alignment, moe_space space) {
        const std::lock_guard lock(mutex_);
        ++calls_;
        const bool power = alignment && !(alignment & (alignment - 1)) && alignment <= 4096;
        if (bytes == 0 || !power || space != MOE_SPACE_HOST) ++n_wrong_;
        if (refuse_ > 0 && --refuse_ == 0) {
            refuse_ = -1;
            return nullptr;
        }
        void* memory = nullptr;
        if (posix_memalign(&memory, alignment < 8 ? 8 : alignment, bytes)) return nullptr;
        std::memset(memory, 0xA5, bytes);
        live_[memory] = {bytes, alignment, space};
        live_bytes_ += bytes;
        smallest_ = std::min(smallest_, bytes);
        return memory;
    }
    void give_back(void* memory, uint64_t bytes, uint64_t alignment, moe_space space) {
        const std::lock_guard lock(mutex_);
        const auto found = live_.find(memory);
        if (found == live_.end() || found->second.bytes != bytes ||
            found->second.alignment != alignment || found->second.space != space) {
            ++n_wrong_;
            return;
        }
        live_bytes_ -= bytes;
        live_.erase(found);
        std::free(memory);
    }

    std::mutex mutex_;
    std::map<void*, Block> live_;
    uint64_t live_bytes_ = 0, smallest_ = UINT64_MAX;
    int64_t calls_ = 0, refuse_ = 0;
    int n_wrong_ = 0;
};

}  // namespace moe_test
