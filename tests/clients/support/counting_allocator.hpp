// An engine's own allocator for moe_allocator: an arena of its own pages, no malloc inside, every
// request counted and every release compared with its request.
#pragma once

#include <sys/mman.h>

#include <mutex>

#include "support/check.hpp"

namespace clients {

class CountingAllocator {
  public:
    CountingAllocator() {
        arena_ = static_cast<char*>(mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        CHECK(arena_ != MAP_FAILED, "mmap of the arena");
    }
    ~CountingAllocator() { munmap(arena_, capacity); }
    CountingAllocator(const CountingAllocator&) = delete;

    moe_allocator table() {
        auto table = sized<moe_allocator>();
        table.allocate = allocate;
        table.release = release;
        table.user_data = this;
        return table;
    }

    uint64_t live_bytes() const { return live_bytes_; }
    uint64_t live_blocks() const { return live_blocks_; }
    uint64_t calls() const { return calls_; }
    uint64_t smallest() const { return smallest_; }
    uint64_t largest() const { return largest_; }

  private:
    // Before each block: what was asked, so that a release can be held against it.
    struct Ticket {
        uint64_t bytes, alignment, live;
    };
    static constexpr uint64_t capacity = uint64_t(2) << 30;
    static constexpr uint64_t alive = 0x6c697665u;

    static void* allocate(uint64_t bytes, uint64_t alignment, moe_space space, void*, void* self) {
        CHECK(bytes > 0 && alignment && !(alignment & (alignment - 1)) && alignment <= 4096,
              "allocate(%llu, alignment %llu)", static_cast<unsigned long long>(bytes),
              static_cast<unsigned long long>(alignment));
        CHECK(space == MOE_SPACE_HOST, "a CPU program got a request for space %d", int(space));
        return static_cast<CountingAllocator*>(self)->take(bytes, alignment);
    }

    static void release(void* memory, uint64_t bytes, uint64_t alignment, moe_space, void*,
                        void* self) {
        static_cast<CountingAllocator*>(self)->give_back(memory, bytes, alignment);
    }

    void* take(uint64_t bytes, uint64_t alignment) {
        const std::lock_guard lock(mutex_);
        const uint64_t step = alignment < 32 ? 32 : alignment;
        const uint64_t offset = (used_ + sizeof(Ticket) + step - 1) / step * step;
        if (offset + bytes > capacity) return nullptr;
        used_ = offset + bytes;
        const Ticket ticket{bytes, alignment, alive};
        std::memcpy(arena_ + offset - sizeof ticket, &ticket, sizeof ticket);
        ++calls_;
        ++live_blocks_;
        live_bytes_ += bytes;
        smallest_ = bytes < smallest_ ? bytes : smallest_;
        largest_ = bytes > largest_ ? bytes : largest_;
        return arena_ + offset;
    }

    void give_back(void* memory, uint64_t bytes, uint64_t alignment) {
        const std::lock_guard lock(mutex_);
        char* const place = static_cast<char*>(memory);
        CHECK(place > arena_ && place < arena_ + used_,
              "release of memory that is not the arena's");
        Ticket ticket;
        std::memcpy(&ticket, place - sizeof ticket, sizeof ticket);
        CHECK(ticket.live == alive, "released twice");
        CHECK(ticket.bytes == bytes && ticket.alignment == alignment,
              "allocated %llu bytes aligned %llu, released as %llu aligned %llu",
              static_cast<unsigned long long>(ticket.bytes),
              static_cast<unsigned long long>(ticket.alignment),
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(alignment));
        ticket.live = 0;
        std::memcpy(place - sizeof ticket, &ticket, sizeof ticket);
        --live_blocks_;
        live_bytes_ -= bytes;
        if (!live_blocks_) used_ = 0;
    }

    std::mutex mutex_;
    char* arena_ = nullptr;
    uint64_t used_ = 0, live_bytes_ = 0, live_blocks_ = 0, calls_ = 0, largest_ = 0;
    uint64_t smallest_ = ~uint64_t(0);
};

}  // namespace clients
