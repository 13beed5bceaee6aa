// How CPU work is shared: a Team runs fn(worker, item) over a range of items and returns when all
// are done. Three kinds: the runtime's own pool, the caller's parallel_for, and the caller's
// threads that all entered moe_forward_spmd. Between two runs only one thread may act, through
// once(); worker numbers are below size() and index scratch memory.
//
// Items run in the default floating-point mode, whatever thread takes them. A Team is made by the
// thread that runs it, which is in that mode for as long as the Team lives.
#pragma once

#include <atomic>
#include <cstdint>

#include "libmoe/base/float_mode.hpp"
#include "libmoe/base/signal.hpp"
#include "moe/moe.h"

namespace moe {

// A reference to a callable, without allocation.
class ItemFn {
  public:
    template <class F>
    ItemFn(F& f)
        : context_(&f), call_([](void* context, int32_t worker, int64_t item) {
              (*static_cast<F*>(context))(worker, item);
          }) {}
    void operator()(int32_t worker, int64_t item) const { call_(context_, worker, item); }

  private:
    void* context_;
    void (*call_)(void*, int32_t, int64_t);
};

class Team {
  public:
    explicit Team(int32_t size) : size_(size) {}
    virtual ~Team() = default;
    int32_t size() const { return size_; }

    template <class F>
    void for_each(int64_t n_items, F&& f) {
        if (n_items > 0) run(n_items, ItemFn(f));
    }
    // f() on one thread while the others wait.
    template <class F>
    void once(F&& f) {
        auto item = [&](int32_t, int64_t) { f(); };
        run(1, ItemFn(item));
    }

  protected:
    virtual void run(int64_t n_items, ItemFn fn) = 0;

  private:
    DefaultFloatMode mode_;
    int32_t size_;
};

// Runs on the calling thread alone.
class SerialTeam final : public Team {
  public:
    SerialTeam() : Team(1) {}

  private:
    void run(int64_t n_items, ItemFn fn) override;
};

// Offers size() tasks to the caller's parallel_for; each takes items until none is left.
class ParallelForTeam final : public Team {
  public:
    ParallelForTeam(int32_t size, moe_parallel_for_fn parallel_for, void* user_data)
        : Team(size), parallel_for_(parallel_for), user_data_(user_data) {}

  private:
    void run(int64_t n_items, ItemFn fn) override;

    moe_parallel_for_fn parallel_for_;
    void* user_data_;
};

// What SPMD threads share; lives in the workspace. Between calls all is zero but the generation.
struct Rendezvous {
    alignas(64) std::atomic<int64_t> next{0};
    alignas(64) std::atomic<int32_t> arrived{0};
    alignas(64) Signal generation;
};

// One member's view. Members whose index is size() or more have no scratch: they only wait.
class SpmdTeam final : public Team {
  public:
    SpmdTeam(Rendezvous& shared, int32_t index, int32_t n_threads, int32_t n_workers)
        : Team(n_workers), shared_(shared), index_(index), n_threads_(n_threads) {}

  private:
    void run(int64_t n_items, ItemFn fn) override;
    void wait_for_all();

    Rendezvous& shared_;
    int32_t index_;
    int32_t n_threads_;
};

}  // namespace moe
