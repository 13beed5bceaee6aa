// What users of a runtime hand on to each other.
#include "libmoe/base/kept.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace moe {
namespace {

struct Thing {
    static inline std::atomic<int> living = 0;
    std::atomic<int> users = 0;

    Thing() { ++living; }
    ~Thing() { --living; }
    static void destroy(void* thing) noexcept { delete static_cast<Thing*>(thing); }
};

TEST(Kept, OneAtATimeAndTheLastOneStays) {
    ASSERT_EQ(Thing::living, 0);
    {
        Kept kept;
        EXPECT_EQ(kept.take(), nullptr);
        auto* first = new Thing;
        kept.keep(first, Thing::destroy);
        EXPECT_EQ(kept.take(), first);
        EXPECT_EQ(kept.take(), nullptr) << "somebody has it";
        auto* second = new Thing;
        kept.keep(second, Thing::destroy);
        kept.keep(first, Thing::destroy);
        EXPECT_EQ(Thing::living, 1) << "of two that come back one is kept";
        EXPECT_EQ(kept.take(), first);
        kept.keep(first, Thing::destroy);
    }
    EXPECT_EQ(Thing::living, 0) << "goes with its owner";
}

TEST(Kept, NeverHasTwoUsers) {
    {
        Kept kept;
        std::atomic<int> shared = 0;
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&] {
                for (int round = 0; round < 2000; ++round) {
                    auto* thing = static_cast<Thing*>(kept.take());
                    if (!thing) thing = new Thing;
                    if (thing->users.fetch_add(1) != 0) ++shared;
                    thing->users.fetch_sub(1);
                    kept.keep(thing, Thing::destroy);
                }
            });
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(shared, 0);
        EXPECT_EQ(Thing::living, 1);
    }
    EXPECT_EQ(Thing::living, 0);
}

}  // namespace
}  // namespace moe
