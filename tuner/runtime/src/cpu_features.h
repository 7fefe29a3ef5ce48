/* Whether this CPU has the instruction-set features that a kernel was compiled for. */
#ifndef TUNER_FEATURES_H
#define TUNER_FEATURES_H

#include "error.h"
#include "function.h"

/* The kernel to call on this CPU: the function itself, or the first of its variants that the CPU has all features for.
 * Null, with the error, where there is none. */
TUNER_HIDDEN const struct tuner_function *tuner_supported(const struct tuner_function *function);

#endif
