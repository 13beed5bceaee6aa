// A shared library of another program, whose functions are found by name. Its symbols are seen by
// no other library, so that two programs with functions of one name do not meet.
#pragma once

#include <cstring>
#include <string>

namespace moe::bench {

class SharedLibrary {
  public:
    // owner: the program, for messages. Throws std::runtime_error where the file does not open. The
    // library stays loaded until the program ends.
    SharedLibrary(const std::string& owner, const std::string& path);

    // Throws std::runtime_error that names the function where there is none.
    template <class Function>
    void find(const char* name, Function& function) const {
        if (!find_any(name, function)) fail(name);
    }
    // Null where there is none. Looks into the libraries that this one needs, too.
    template <class Function>
    bool find_any(const char* name, Function& function) const {
        void* found = address(name);
        std::memcpy(&function, &found, sizeof function);
        return found;
    }

  private:
    void* address(const char* name) const;
    [[noreturn]] void fail(const char* name) const;

    std::string owner_;
    void* handle_;
};

}  // namespace moe::bench
