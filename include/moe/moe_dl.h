/*
 * moe_dl.h - loads libmoe at run time. Header only, C99 and C++11, needs dlopen and nothing else.
 *
 *   moe_api api;
 *   char error[512];
 *   if (moe_dl_open(&api, NULL, error, sizeof error) != MOE_OK) { ... error says what was tried ... }
 *   api.forward(plan, weights, workspace, &args);      moe_<name> of moe.h is api.<name>
 *   moe_dl_close(&api);                                after every handle is destroyed
 */
#ifndef MOE_MOE_DL_H
#define MOE_MOE_DL_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/moe.h"

/* The file name of the library that speaks this header's ABI. */
#ifndef MOE_DL_LIBRARY
#define MOE_DL_LIBRARY "libmoe.so.0.1"
#endif

/* Every function of moe.h, in its order, without the prefix; moe_abi_version stands apart because it is asked first. */
#define MOE_DL_FUNCTIONS(X)                                                                                     \
    X(version) X(version_string) X(build_info) X(status_name) X(last_error) X(last_error_copy)                  \
    X(role_name) X(type_name)                                                                                   \
    X(runtime_create) X(runtime_destroy) X(device_count) X(device_get_info)                                     \
    X(memory_allocate) X(memory_free) X(memory_copy) X(memory_zero)                                             \
    X(stream_create) X(stream_synchronize) X(stream_destroy)                                                    \
    X(layer_validate)                                                                                           \
    X(format_name_at) X(format_by_name) X(format_get_info) X(format_size)                                       \
    X(plan_create) X(plan_destroy) X(supports) X(plan_key) X(plan_layout_id) X(plan_device)                     \
    X(plan_workspace_size) X(plan_kernel) X(candidates) X(plan_explain)                                         \
    X(weights_size) X(weights_load) X(weights_destroy) X(weights_update) X(weights_layout_id)                   \
    X(weights_memory) X(weights_save) X(weights_open)                                                           \
    X(workspace_create) X(workspace_destroy) X(workspace_status)                                                \
    X(forward) X(forward_spmd) X(route) X(dispatch) X(gather) X(experts) X(combine) X(finish)                   \
    X(checkpoint_open) X(checkpoint_destroy) X(checkpoint_get_info) X(checkpoint_family_at)                     \
    X(checkpoint_layer_at) X(checkpoint_layer) X(checkpoint_formats) X(checkpoint_tensor)                       \
    X(weights_load_checkpoint)                                                                                  \
    X(loading_start) X(loading_start_checkpoint) X(loading_poll) X(loading_wait) X(loading_cancel)              \
    X(loading_destroy)                                                                                          \
    X(quantize) X(dequantize) X(scale_layout_size) X(convert_scales)

#ifdef __cplusplus
#define MOE_DL_MEMBER(name) decltype(&::moe_##name) name;
#else
#define MOE_DL_MEMBER(name) __extension__ __typeof__(&moe_##name) name;
#endif

typedef struct moe_api {
    void *handle; /* of dlopen; NULL when closed */
    MOE_DL_MEMBER(abi_version)
    MOE_DL_FUNCTIONS(MOE_DL_MEMBER)
} moe_api;

/* ISO C has no cast from an object pointer to a function pointer; the bytes are the same wherever dlsym exists. */
static inline int moe_dl_symbol(void *handle, const char *symbol, void *out_function, char *error, size_t capacity) {
    void *address = dlsym(handle, symbol);
    memcpy(out_function, &address, sizeof address);
    if (!address) snprintf(error, capacity, "libmoe: the library found lacks the symbol %s", symbol);
    return address != NULL;
}

static inline void moe_dl_close(moe_api *api) {
    if (api->handle) dlclose(api->handle);
    memset(api, 0, sizeof *api);
}

/* Opens the first that loads of: $MOE_LIBRARY, path (may be NULL), MOE_DL_LIBRARY. Says in error what was tried. */
static inline void *moe_dl_first(const char *path, char *error, size_t capacity) {
    const char *candidates[3];
    size_t i, length = 0;
    candidates[0] = getenv("MOE_LIBRARY");
    candidates[1] = path;
    candidates[2] = MOE_DL_LIBRARY;
    for (i = 0; i < 3; ++i) {
        void *handle;
        const char *reason;
        int written;
        if (!candidates[i] || !candidates[i][0]) continue;
        handle = dlopen(candidates[i], RTLD_NOW | RTLD_LOCAL);
        if (handle) return handle;
        reason = dlerror();
        written = snprintf(error + length, capacity - length, "%s%s", length ? "; " : "libmoe not found: ",
                           reason ? reason : candidates[i]);
        if (written > 0) length += (size_t)written;
        if (length >= capacity) length = capacity ? capacity - 1 : 0;
    }
    return NULL;
}

/*
 * MOE_OK, or MOE_ERROR_NOT_FOUND: no library, or one that lacks a symbol; MOE_ERROR_ABI: one of another ABI version,
 * of which nothing else was asked. On failure error (never NULL, capacity > 0) has a sentence and *api is zero.
 */
static inline moe_status moe_dl_open(moe_api *api, const char *path, char *error, size_t capacity) {
    int complete = 1;
    memset(api, 0, sizeof *api);
    error[0] = '\0';
    api->handle = moe_dl_first(path, error, capacity);
    if (!api->handle) return MOE_ERROR_NOT_FOUND;
    error[0] = '\0';

    if (!moe_dl_symbol(api->handle, "moe_abi_version", &api->abi_version, error, capacity)) {
        moe_dl_close(api);
        return MOE_ERROR_NOT_FOUND;
    }
    if (api->abi_version() != MOE_ABI_VERSION) {
        snprintf(error, capacity, "libmoe: found ABI version %u, wanted %u", (unsigned)api->abi_version(),
                 (unsigned)MOE_ABI_VERSION);
        moe_dl_close(api);
        return MOE_ERROR_ABI;
    }

#define MOE_DL_RESOLVE(name) \
    complete = complete && moe_dl_symbol(api->handle, "moe_" #name, &api->name, error, capacity);
    MOE_DL_FUNCTIONS(MOE_DL_RESOLVE)
#undef MOE_DL_RESOLVE
    if (complete) return MOE_OK;
    moe_dl_close(api);
    return MOE_ERROR_NOT_FOUND;
}

#undef MOE_DL_MEMBER

#endif /* MOE_MOE_DL_H */
