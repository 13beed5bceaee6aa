// Versions, build facts, status names and the last error.
#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"

#define MOE_TEXT_(x) #x
#define MOE_TEXT(x) MOE_TEXT_(x)
#define MOE_VERSION_TEXT \
    MOE_TEXT(MOE_VERSION_MAJOR) "." MOE_TEXT(MOE_VERSION_MINOR) "." MOE_TEXT(MOE_VERSION_PATCH)

#if defined(__x86_64__)
#define MOE_ISA_TEXT "avx2 avx512"
#elif defined(__aarch64__) && defined(__linux__)
#define MOE_ISA_TEXT "neon i8mm"
#else
#define MOE_ISA_TEXT "none"
#endif

// CUDA's come from the build: MOE_CUDA_ARCHITECTURES is "sm_80 sm_90a ...".
#if defined(MOE_CUDA_ARCHITECTURES)
#define MOE_BACKENDS_TEXT "cpu cuda\ncuda_architectures=" MOE_CUDA_ARCHITECTURES
#else
#define MOE_BACKENDS_TEXT "cpu"
#endif

uint32_t moe_version(void) noexcept {
    return MOE_VERSION_NUMBER;
}

uint32_t moe_abi_version(void) noexcept {
    return MOE_ABI_VERSION;
}

const char* moe_version_string(void) noexcept {
    return MOE_VERSION_TEXT;
}

const char* moe_build_info(void) noexcept {
    return "version=" MOE_VERSION_TEXT
           "\nabi=" MOE_TEXT(MOE_ABI_VERSION) "\ncompiler=" __VERSION__
                                              "\nbackends=" MOE_BACKENDS_TEXT "\nisa=" MOE_ISA_TEXT
                                              "\n";
}

const char* moe_status_name(moe_status status) noexcept {
    switch (status) {
#define MOE_NAME(name) \
    case name:         \
        return #name
        MOE_NAME(MOE_OK);
        MOE_NAME(MOE_ERROR_INVALID_ARGUMENT);
        MOE_NAME(MOE_ERROR_OUT_OF_MEMORY);
        MOE_NAME(MOE_ERROR_UNSUPPORTED);
        MOE_NAME(MOE_ERROR_NOT_BUILT);
        MOE_NAME(MOE_ERROR_NO_DEVICE);
        MOE_NAME(MOE_ERROR_LAYOUT_MISMATCH);
        MOE_NAME(MOE_ERROR_WORKSPACE_TOO_SMALL);
        MOE_NAME(MOE_ERROR_CANCELLED);
        MOE_NAME(MOE_ERROR_FORKED);
        MOE_NAME(MOE_ERROR_IO);
        MOE_NAME(MOE_ERROR_CORRUPT_FILE);
        MOE_NAME(MOE_ERROR_NOT_FOUND);
        MOE_NAME(MOE_ERROR_ABI);
        MOE_NAME(MOE_ERROR_DEVICE);
        MOE_NAME(MOE_ERROR_BUSY);
        MOE_NAME(MOE_ERROR_BUFFER_TOO_SMALL);
        MOE_NAME(MOE_ERROR_INTERNAL);
#undef MOE_NAME
        default:
            return "MOE_ERROR_UNKNOWN";
    }
}

const char* moe_last_error(void) noexcept {
    return moe::last_error();
}

// Does not go through guard: it reads what guard would clear.
moe_status moe_last_error_copy(char* buffer, uint64_t capacity, uint64_t* out_size) noexcept {
    const char* text = moe::last_error();
    try {
        moe::copy_text(text, std::strlen(text), buffer, capacity, out_size);
        return MOE_OK;
    } catch (const moe::Error& error) {
        return error.status();
    }
}
