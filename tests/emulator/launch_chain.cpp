// Runs launches in threads that take turns; launch_chain.hpp documents the order.
#include "tests/emulator/launch_chain.hpp"

#include <algorithm>
#include <exception>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace emulator {

class LaunchChain::Member : public Neighbours {
  public:
    using Earlier = std::vector<std::shared_ptr<Member>>;

    Member(Body body, Earlier earlier)
        : body_(std::move(body)), earlier_(std::move(earlier)), thread_([this] { run(); }) {}
    ~Member() override {
        if (has_ended_)
            thread_.join();
        else
            thread_.detach();  // after a fault nothing runs any more
    }

    // The thread that waits runs it meanwhile.
    void go_on() {
        go_.release();
        back_.acquire();
    }
    void run_to_end() {
        while (!has_ended_) go_on();
    }
    bool has_ended() const { return has_ended_; }
    std::exception_ptr take_failure() { return std::exchange(failure_, nullptr); }

    bool has_earlier() const override {
        return std::any_of(earlier_.begin(), earlier_.end(),
                           [](const auto& one) { return !one->has_ended(); });
    }
    // The last launch runs first: it reaches its own wait before the earlier ones continue.
    void end_earlier() override {
        for (auto one = earlier_.rbegin(); one != earlier_.rend(); ++one) (*one)->run_to_end();
    }
    void let_next_begin() override {
        back_.release();
        go_.acquire();
    }

  private:
    Body body_;
    Earlier earlier_;
    bool has_ended_ = false;
    std::exception_ptr failure_;
    std::binary_semaphore go_{0}, back_{0};
    std::thread thread_;

    void run() {
        go_.acquire();
        try {
            body_(*this);
        } catch (...) {
            failure_ = std::current_exception();
        }
        earlier_.clear();
        has_ended_ = true;
        back_.release();
    }
};

void LaunchChain::start(Body body) {
    Member::Earlier earlier(members_.begin(), members_.end());
    members_.push_back(std::make_shared<Member>(std::move(body), std::move(earlier)));
    members_.back()->go_on();
    drop_ended();
}

void LaunchChain::finish() {
    const std::deque all = members_;
    for (auto one = all.rbegin(); one != all.rend(); ++one) (*one)->run_to_end();
    drop_ended();
}

void LaunchChain::drop_ended() {
    std::exception_ptr failure;
    for (const auto& one : members_) {
        if (one->has_ended() && !failure) failure = one->take_failure();
    }
    std::erase_if(members_, [](const auto& one) { return one->has_ended(); });
    if (failure) std::rethrow_exception(failure);
}

}  // namespace emulator
