// The threads that ggml computes with, for calls of libmoe. ggml's threads wait for its next graph
// by spinning, on the cores that libmoe would compute on, so that threads of libmoe's own get half
// of each core at best. A graph of one node gives ggml's threads to libmoe instead.
//
// The pool is the one that the program sets for its CPU backend. ggml tells other backends nothing
// of it, so the function of the CPU's registry that sets it is replaced by one that takes note.
// Where a program sets none, ggml starts threads anew for every graph, and there are more graphs
// with this backend than without. Such a program's CPU backend gets a pool of this backend's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "interface.hpp"
#include "moe/moe.h"

namespace moe::ggml {

// Looks the functions up and replaces the one; before a program computes. Does nothing with
// MOE_GGML_THREADS=own, or where ggml lacks a function.
void find_host_threads();

// Null, the process default with threads of its own, unless ggml's threads can be had. Loops of
// calls with it are shared within HostThreads::run, and run on the calling thread elsewhere.
moe_runtime* runtime_of_calls();

// Tasks that threads take in any order. A thread that the system holds up keeps the others from
// nothing but its own task.
class SharedLoop {
  public:
    // Before other threads help.
    void begin() { is_over_.store(false, std::memory_order_release); }
    // The caller's part: publishes the tasks, takes some, and returns when all are done.
    void run(int32_t n_tasks, moe_task_fn task, void* data);
    void end() { is_over_.store(true, std::memory_order_release); }
    // The others' part: takes tasks until the end.
    void help();

  private:
    bool take_one();  // false: no task of this loop is left

    // The number of the loop, and that of its next task in the low half. Odd numbers: the fields
    // below are about to change.
    std::atomic<uint64_t> next_{};
    std::atomic<int32_t> n_tasks_{}, n_done_{};
    std::atomic<moe_task_fn> task_{};
    std::atomic<void*> data_{};
    std::atomic<bool> is_over_{};
};

// Those of one backend, used by the thread that computes its graphs.
class HostThreads {
  public:
    HostThreads() = default;
    HostThreads(const HostThreads&) = delete;
    HostThreads& operator=(const HostThreads&) = delete;
    ~HostThreads();

    // By the thread that has just set the pool of the CPU backend, as llama.cpp does before every
    // graph. What it set last stays in use, as it does in that backend.
    void set_n_threads(int n_threads);
    int n_threads() const { return n_threads_; }
    // Calls work on this thread. False: no other thread helped.
    bool run(const std::function<void()>& work);

  private:
    void use_own_pool();
    void drop_own_pool();
    void compute_with(ThreadPool* pool);
    static void node(Tensor*, int thread, int n_threads, void* self);

    int n_threads_ = 0;  // 0: nobody has said
    ThreadPool* program_pool_ = nullptr;
    Backend* cpu_ = nullptr;  // the program's, if it has told its pool
    ThreadPool* own_pool_ = nullptr;
    int own_threads_ = 0;
    ContextMemory* context_ = nullptr;
    Graph* graph_ = nullptr;
    std::vector<uint8_t> scratch_;
    SharedLoop loop_;
    const std::function<void()>* work_ = nullptr;
};

}  // namespace moe::ggml
