#include "bench/peers/shared_library.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace moe::bench {

SharedLibrary::SharedLibrary(const std::string& owner, const std::string& path)
    : owner_(owner), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) throw std::runtime_error(dlerror());
}

void* SharedLibrary::address(const char* name) const {
    return dlsym(handle_, name);
}

void SharedLibrary::fail(const char* name) const {
    throw std::runtime_error("this " + owner_ + " has no function " + name);
}

}  // namespace moe::bench
