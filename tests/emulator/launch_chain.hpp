// Launches that begin before those before them have ended (programmatic dependent launch), as early
// as they may: one after the other, never two at a time, each in a thread of its own that stands
// still while another goes on.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "tests/emulator/machine.hpp"

namespace emulator {

class LaunchChain {
  public:
    using Body = std::function<void(Neighbours&)>;

    // Runs `body` until it lets the next launch begin, or to its end. Throws what it throws, and
    // what those before it threw since.
    void start(Body body);
    // Runs all to their ends, each as far as it comes before those before it go on.
    void finish();

  private:
    class Member;
    std::deque<std::shared_ptr<Member>> members_;

    void drop_ended();
};

}  // namespace emulator
