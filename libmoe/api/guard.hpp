// The boundary: where exceptions become a status, and the last error of each thread.
#pragma once

#include <new>

#include "libmoe/base/error.hpp"
#include "libmoe/base/handle.hpp"

namespace moe {

// A fixed array per thread: a destructor would keep the library mapped after dlclose.
void set_last_error(const char* sentence) noexcept;
const char* last_error() noexcept;

// Runs body and turns whatever it throws into a status and a sentence.
template <class Body>
moe_status guard(Body&& body) noexcept {
    set_last_error("");
    try {
        body();
        set_last_error("");  // a callback may have called the library and failed there
        return MOE_OK;
    } catch (const Error& error) {
        set_last_error(error.what());
        return error.status();
    } catch (const std::bad_alloc&) {
        set_last_error("out of memory");
        return MOE_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
        set_last_error(error.what());
        return MOE_ERROR_INTERNAL;
    } catch (...) {
        set_last_error("unknown exception");
        return MOE_ERROR_INTERNAL;
    }
}

// Fails unless handle points to a living handle.
template <class Handle>
Handle& check_handle(Handle* handle, const char* name) {
    require(handle != nullptr, "{} is NULL", name);
    require(is_living(handle), "{} is not a living {}", name, name);
    return *handle;
}

template <class T>
T& check_out(T* out, const char* name) {
    require(out != nullptr, "{} is NULL", name);
    return *out;
}

}  // namespace moe
