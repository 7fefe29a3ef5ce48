/* The runtime inside every tuned library: calling a kernel with checks, errors, threads, workspace, timing.
 * Generated wrappers include this file; users of a library never do (they get include/<name>.h).
 * Everything here is hidden, so each library carries its own copy and two of them live in one process without meeting. */
#ifndef TUNER_RUNTIME_H
#define TUNER_RUNTIME_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "function.h"
#include "thread_pool.h"
#include "tvm_abi.h"
#include "workspace.h"

/* Checks the buffers and calls the kernel. `buffers` holds one pointer for each argument; of a portfolio, the number of rows as
 * an intptr_t after them. Returns an enum tuner_status. */
TUNER_HIDDEN int tuner_call(const struct tuner_function *function, void *const *buffers);

/* Calls the kernel `number` times for each of `repeat` samples; samples_s[i] is the mean seconds of one call (CLOCK_MONOTONIC). */
TUNER_HIDDEN int tuner_time(const struct tuner_function *function, void *const *buffers, int64_t number, int64_t repeat,
                            double *samples_s);

#endif
