// Teams: every item exactly once, worker numbers that index scratch, whoever the threads are.
#include "libmoe/base/team.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "libmoe/base/pool.hpp"
#include "tests/support/float_modes.hpp"

namespace moe {
namespace {

const int64_t sizes[] = {1, 2, 3, 7, 16, 64, 257, 1000};

// What one run did. Items and workers may be touched by any thread.
struct Record {
    std::vector<std::atomic<int>> times;
    std::vector<std::atomic<int>> in_use;
    std::atomic<int> errors{0};

    Record(int64_t n_items, int32_t n_workers)
        : times(static_cast<size_t>(n_items)), in_use(static_cast<size_t>(n_workers)) {}

    void take(int32_t worker, int64_t item) {
        const bool known = worker >= 0 && worker < static_cast<int32_t>(in_use.size()) &&
                           item >= 0 && item < static_cast<int64_t>(times.size());
        if (!known) {
            ++errors;
            return;
        }
        // Two threads may not be the same worker at the same time.
        if (in_use[static_cast<size_t>(worker)].fetch_add(1) != 0) ++errors;
        ++times[static_cast<size_t>(item)];
        in_use[static_cast<size_t>(worker)].fetch_sub(1);
    }
    void expect_each_once() const {
        EXPECT_EQ(errors, 0);
        for (size_t i = 0; i < times.size(); ++i) ASSERT_EQ(times[i], 1) << "item " << i;
    }
};

void check(Team& team) {
    for (const int64_t n : sizes) {
        Record record(n, team.size());
        team.for_each(n, [&](int32_t worker, int64_t item) { record.take(worker, item); });
        ASSERT_NO_FATAL_FAILURE(record.expect_each_once()) << n << " items";
    }
    int n_calls = 0;
    team.for_each(0, [&](int32_t, int64_t) { ++n_calls; });
    EXPECT_EQ(n_calls, 0);
    for (int i = 0; i < 3; ++i) team.once([&] { ++n_calls; });
    EXPECT_EQ(n_calls, 3);
}

TEST(Team, SerialDoesItemsInOrder) {
    SerialTeam team;
    EXPECT_EQ(team.size(), 1);
    check(team);
    std::vector<int64_t> order;
    team.for_each(5, [&](int32_t, int64_t item) { order.push_back(item); });
    EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

void in_threads(int32_t n_tasks, moe_task_fn task, void* data, void* calls) {
    ++*static_cast<int*>(calls);
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < n_tasks; ++i) threads.emplace_back([=] { task(i, data); });
    for (auto& thread : threads) thread.join();
}

void backwards(int32_t n_tasks, moe_task_fn task, void* data, void* calls) {
    ++*static_cast<int*>(calls);
    for (int32_t i = n_tasks; i-- > 0;) task(i, data);
}

TEST(Team, ParallelForOffersItsTasks) {
    for (const auto parallel_for : {in_threads, backwards})
        for (const int32_t size : {1, 2, 5}) {
            int calls = 0;
            ParallelForTeam team(size, parallel_for, &calls);
            EXPECT_EQ(team.size(), size);
            check(team);
            EXPECT_EQ(calls > 0, size > 1) << "one task needs no parallel_for";
        }
}

void run_spmd(int32_t n_threads, int32_t n_workers,
              const std::function<void(Team&, int32_t)>& body) {
    Rendezvous shared;
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < n_threads; ++i)
        threads.emplace_back([&, i] {
            SpmdTeam team(shared, i, n_threads, n_workers);
            body(team, i);
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(shared.next, 0) << "the meeting place is left as it was found";
    EXPECT_EQ(shared.arrived, 0);
}

TEST(Team, SpmdSharesItemsAmongThreadsThatEntered) {
    for (const int32_t n_threads : {1, 2, 3, 6})
        for (const int32_t n_workers : {1, 2, 4}) {
            std::vector<std::unique_ptr<Record>> records;
            for (const int64_t n : sizes) records.push_back(std::make_unique<Record>(n, n_workers));
            run_spmd(n_threads, n_workers, [&](Team& team, int32_t) {
                for (size_t i = 0; i < records.size(); ++i)
                    team.for_each(sizes[i], [&](int32_t worker, int64_t item) {
                        records[i]->take(worker, item);
                    });
            });
            for (const auto& record : records) ASSERT_NO_FATAL_FAILURE(record->expect_each_once());
        }
}

// What one thread writes in once() all read afterwards, and nobody runs ahead into the next step.
TEST(Team, SpmdMeetsAfterEveryStep) {
    constexpr int32_t n_threads = 4, n_steps = 60;
    int64_t written = -1;
    std::atomic<int> errors{0};
    run_spmd(n_threads, 2, [&](Team& team, int32_t) {
        for (int32_t step = 0; step < n_steps; ++step) {
            team.once([&] { written = step; });
            if (written != step) ++errors;
            team.for_each(16, [&](int32_t, int64_t) { errors += written != step; });
        }
    });
    EXPECT_EQ(errors, 0);
    EXPECT_EQ(written, n_steps - 1);
}

TEST(Pool, SharesItemsAmongItsThreads) {
    for (const int32_t n_threads : {1, 2, 4}) {
        Pool pool(*std::pmr::new_delete_resource(), n_threads);
        EXPECT_EQ(pool.n_threads(), n_threads);
        PoolTeam team(pool);
        check(team);
        EXPECT_FALSE(pool.forked());
    }
}

// Every thread that takes items is in the default mode, and the caller's comes back.
void check_mode(const std::function<void(const std::function<void(Team&)>&)>& with_team) {
    const moe_test::OddFloatMode odd;
    ASSERT_FALSE(moe_test::is_default_mode());
    std::atomic<int> errors{0};
    with_team([&](Team& team) {
        team.once([&] { errors += !moe_test::is_default_mode(); });
        team.for_each(64, [&](int32_t, int64_t) {
            errors += !moe_test::is_default_mode();
            std::this_thread::yield();
        });
    });
    EXPECT_EQ(errors, 0);
    EXPECT_FALSE(moe_test::is_default_mode()) << "the caller's mode is lost";
}

TEST(FloatMode, IsTheDefaultWhileATeamWorks) {
    ASSERT_TRUE(moe_test::is_default_mode());
    check_mode([](const auto& body) {
        SerialTeam team;
        body(team);
    });
    for (const auto parallel_for : {in_threads, backwards})
        check_mode([&](const auto& body) {
            int calls = 0;
            ParallelForTeam team(3, parallel_for, &calls);
            body(team);
        });
    // Tasks give the caller's threads back as they were.
    const auto checked = [](int32_t n_tasks, moe_task_fn task, void* data, void* lost) {
        const moe_test::OddFloatMode odd;
        for (int32_t i = 0; i < n_tasks; ++i) {
            task(i, data);
            *static_cast<int*>(lost) += moe_test::is_default_mode();
        }
    };
    int lost = 0;
    check_mode([&](const auto& body) {
        ParallelForTeam team(3, checked, &lost);
        body(team);
    });
    EXPECT_EQ(lost, 0);
    // The pool's threads are started by a thread in the odd mode.
    check_mode([](const auto& body) {
        Pool pool(*std::pmr::new_delete_resource(), 3);
        PoolTeam team(pool);
        body(team);
    });
    Rendezvous shared;
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < 3; ++i)
        threads.emplace_back([&, i] {
            check_mode([&](const auto& body) {
                SpmdTeam team(shared, i, 3, 3);
                body(team);
            });
        });
    for (auto& thread : threads) thread.join();
}

// Items that wait until as many have begun as there should be threads: with fewer threads they wait
// in vain. Says which threads did them.
std::set<std::thread::id> threads_that_meet(Team& team) {
    std::atomic<int32_t> n_begun{0};
    std::mutex mutex;
    std::set<std::thread::id> ids;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    team.for_each(team.size(), [&](int32_t worker, int64_t) {
        EXPECT_LT(worker, team.size());
        ++n_begun;
        while (n_begun < team.size() && std::chrono::steady_clock::now() < give_up)
            std::this_thread::yield();
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
    });
    return ids;
}

TEST(Pool, UsesAsManyOfItsThreadsAsATeamHas) {
    Pool pool(*std::pmr::new_delete_resource(), 5);
    for (const int32_t size : {5, 1, 3, 2, 4, 5, 2}) {
        PoolTeam team(pool, size);
        EXPECT_EQ(team.size(), size);
        check(team);
        const auto ids = threads_that_meet(team);
        EXPECT_EQ(ids.size(), static_cast<size_t>(size));
        EXPECT_TRUE(ids.count(std::this_thread::get_id())) << "the caller takes part";
    }
}

TEST(Pool, NeverUsesMoreThreadsThanATeamHas) {
    Pool pool(*std::pmr::new_delete_resource(), 6);
    PoolTeam all(pool);
    for (const int32_t size : {1, 2, 4})
        for (int run = 0; run < 100; ++run) {
            all.for_each(12, [](int32_t, int64_t) {});  // so that no thread is asleep
            PoolTeam team(pool, size);
            std::mutex mutex;
            std::set<std::thread::id> ids;
            team.for_each(64, [&](int32_t worker, int64_t) {
                EXPECT_LT(worker, size);
                const std::lock_guard lock(mutex);
                ids.insert(std::this_thread::get_id());
            });
            ASSERT_LE(ids.size(), static_cast<size_t>(size));
            if (size == 1) {
                ASSERT_EQ(ids, std::set<std::thread::id>{std::this_thread::get_id()});
            }
        }
}

// The thread sanitizer delivers a signal only when its thread comes back.
#if !defined(__SANITIZE_THREAD__)
// A thread that a signal handler holds stands for one that the scheduler does not run.
std::atomic<bool> is_held{false}, is_released{false};

void hold_this_thread(int) {
    is_held = true;
    while (!is_released) sched_yield();
}

bool waits_for(const std::atomic<bool>& flag) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!flag && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    return flag;
}

TEST(Pool, ARunDoesNotWaitForAThreadThatDoesNotCome) {
    Pool pool(*std::pmr::new_delete_resource(), 2);
    PoolTeam team(pool);
    std::atomic<int32_t> n_begun{0};
    pthread_t worker_thread{};
    team.for_each(2, [&](int32_t worker, int64_t) {
        if (worker == 1) worker_thread = pthread_self();
        for (++n_begun; n_begun < 2;) std::this_thread::yield();
    });
    ASSERT_FALSE(pthread_equal(worker_thread, pthread_self()));
    is_held = is_released = false;
    const auto before = std::signal(SIGUSR1, hold_this_thread);
    pthread_kill(worker_thread, SIGUSR1);
    ASSERT_TRUE(waits_for(is_held));
    std::atomic<bool> is_done{false};
    std::thread caller([&] {
        PoolTeam own(pool);
        for (int run = 0; run < 10; ++run) check(own);
        is_done = true;
    });
    EXPECT_TRUE(waits_for(is_done)) << "the caller waits for the thread that is held";
    is_released = true;
    caller.join();
    std::signal(SIGUSR1, before);
    check(team);
}
#endif

// Between the runs the threads have time to park, and sometimes not quite.
TEST(Pool, WakesThreadsThatHaveParked) {
    Pool pool(*std::pmr::new_delete_resource(), 3);
    PoolTeam team(pool);
    for (int run = 0; run < 300; ++run) {
        std::this_thread::sleep_for(std::chrono::microseconds(run % 7 * 20));
        ASSERT_EQ(threads_that_meet(team).size(), 3u) << "run " << run;
    }
}

TEST(Signal, LosesNoRaise) {
    Signal there, back;
    constexpr uint32_t n_rounds = 2000;
    std::thread other([&] {
        for (uint32_t i = 0; i < n_rounds; ++i) {
            there.wait_while(i);
            if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 40));
            back.raise(1);
        }
    });
    for (uint32_t i = 0; i < n_rounds; ++i) {
        there.raise(1);
        back.wait_while(i);
    }
    other.join();
    EXPECT_EQ(there.value(), n_rounds);
    EXPECT_EQ(back.value(), n_rounds);
}

// A thread that waits for longer gives its core away: it hardly uses processor time.
TEST(Signal, ParksWhoWaits) {
    Signal signal;
    double seconds = 1;
    std::thread waiter([&] {
        signal.wait_while(0);
        timespec used;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        seconds = static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    signal.raise(1);
    waiter.join();
    EXPECT_LT(seconds, 0.02);
}

TEST(Pool, UnusedItStartsAndJoinsNothing) {
    Pool pool(*std::pmr::new_delete_resource(), 8);
    EXPECT_FALSE(pool.forked());
}

TEST(Pool, ManyShortRunsLoseNothing) {
    Pool pool(*std::pmr::new_delete_resource(), 3);
    PoolTeam team(pool);
    int64_t sum = 0;
    for (int64_t run = 0; run < 2000; ++run) {
        std::atomic<int64_t> items{0};
        team.for_each(5, [&](int32_t, int64_t item) { items += item + 1; });
        sum += items;
    }
    EXPECT_EQ(sum, 2000 * 15);
}

// A caller that finds the pool taken works alone; each caller has its own scratch, so workers are
// counted by caller.
TEST(Pool, ServesTwoCallersAtOnce) {
    Pool pool(*std::pmr::new_delete_resource(), 3);
    const auto caller = [&] {
        PoolTeam team(pool);
        for (int i = 0; i < 30; ++i) check(team);
    };
    std::thread other(caller);
    caller();
    other.join();
}

TEST(Pool, ItemsMayRunSingleItems) {
    Pool pool(*std::pmr::new_delete_resource(), 3);
    PoolTeam team(pool);
    std::atomic<int> outer{0}, inner{0};
    team.for_each(20, [&](int32_t, int64_t) {
        ++outer;
        team.once([&] { ++inner; });
    });
    EXPECT_EQ(outer, 20);
    EXPECT_EQ(inner, 20);
}

}  // namespace
}  // namespace moe
