/* Calling one kernel with checks. */
#ifndef TUNER_CALL_H
#define TUNER_CALL_H

#include "error.h"
#include "function.h"

/* Whether the buffers of a call are there, aligned and apart; of a portfolio, in a call with so many rows. */
TUNER_HIDDEN int tuner_check_buffers(const struct tuner_function *function, void *const *buffers, int64_t rows);

/* Checks the buffers of a function that is no portfolio and calls the kernel that this CPU supports. */
TUNER_HIDDEN int tuner_call_kernel(const struct tuner_function *function, void *const *buffers);

#endif
