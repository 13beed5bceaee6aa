// Launches under programmatic dependent launch (PDL), each as early as the rules allow. Every
// launch has a host thread of its own, and only one of these threads runs at a time. Inputs: bodies
// in stream order.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "tests/emulator/machine.hpp"

namespace emulator {

class LaunchChain {
  public:
    using Body = std::function<void(Neighbours&)>;

    // Runs `body` until it lets the next launch begin, or to its end. It rethrows the errors of
    // `body` and of earlier launches since.
    void start(Body body);
    // Runs all launches to their ends, each as far as it gets before the earlier ones continue.
    void finish();

  private:
    class Member;
    std::deque<std::shared_ptr<Member>> members_;

    void drop_ended();
};

}  // namespace emulator
