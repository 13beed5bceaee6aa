/* What the Go files see of C: moe.h and the callbacks that lead back to Go. */
#ifndef MOEGO_H
#define MOEGO_H

#include <stdint.h>
#include <stdlib.h>

#ifdef MOEGO_DLOPEN
#define MOE_STATIC /* no visibility of its own: hidden, and defined in dl.c */
#pragma GCC visibility push(hidden)
#endif
#include "moe/moe.h"
#ifdef MOEGO_DLOPEN
#pragma GCC visibility pop
moe_status moego_open(const char *path, char *error, uint64_t capacity);
#endif

/* Handles of Go travel as numbers: user_data is never a pointer into Go memory. */
void moego_set_log(moe_runtime_desc *desc, uintptr_t hooks);
void moego_set_parallel_for(moe_runtime_desc *desc, uintptr_t hooks);
void moego_set_allocator(moe_allocator *allocator, uintptr_t hooks);
void moego_set_progress(moe_progress_fn *function, void **user_data, uintptr_t hook);
void moego_run_task(void *task, int32_t index, void *task_data);

#endif
