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

/* The functions that the library calls. Handles of Go travel as numbers: user_data is never a pointer into Go memory. */
typedef struct moego_addresses {
    uintptr_t log, parallel_for, allocate, release, progress;
} moego_addresses;

moego_addresses moego_callbacks(void);
void moego_run_task(uintptr_t task, int32_t index, void *task_data);

#endif
