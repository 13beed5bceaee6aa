//go:build cgo

/* The functions that the library calls: each hands its arguments to the Go function of the same name. */
#include "moego.h"
#include "_cgo_export.h"

static void log_line(moe_log_level level, const char *message, void *user_data) {
    moegoLog((int32_t)level, (char *)message, (uintptr_t)user_data);
}

static void parallel_for(int32_t n_tasks, moe_task_fn task, void *task_data, void *user_data) {
    moegoParallelFor(n_tasks, (uintptr_t)task, task_data, (uintptr_t)user_data);
}

static void *allocate(uint64_t bytes, uint64_t alignment, moe_space space, void *stream, void *user_data) {
    return moegoAllocate(bytes, alignment, (int32_t)space, stream, (uintptr_t)user_data);
}

static void release(void *memory, uint64_t bytes, uint64_t alignment, moe_space space, void *stream, void *user_data) {
    moegoRelease(memory, bytes, alignment, (int32_t)space, stream, (uintptr_t)user_data);
}

static int32_t progress(uint64_t done, uint64_t total, void *user_data) {
    return moegoProgress(done, total, (uintptr_t)user_data);
}

moego_addresses moego_callbacks(void) {
    moego_addresses all = {(uintptr_t)log_line, (uintptr_t)parallel_for, (uintptr_t)allocate, (uintptr_t)release,
                           (uintptr_t)progress};
    return all;
}

void moego_run_task(uintptr_t task, int32_t index, void *task_data) {
    ((moe_task_fn)task)(index, task_data);
}
