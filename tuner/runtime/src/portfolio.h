/* One function for any number of rows in a range. */
#ifndef TUNER_PORTFOLIO_H
#define TUNER_PORTFOLIO_H

#include "error.h"
#include "function.h"

/* Checks and calls a portfolio. `buffers` holds one pointer for each argument and the number of rows as an intptr_t. */
TUNER_HIDDEN int tuner_call_portfolio(const struct tuner_function *function, void *const *buffers);

#endif
