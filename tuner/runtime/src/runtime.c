/* Entry points of the generated wrapper: calling a function, and the timing loop. */
#define _GNU_SOURCE
#include "tuner_runtime.h"

#include <time.h>

#include "call.h"
#include "portfolio.h"

int tuner_call(const struct tuner_function *function, void *const *buffers) {
  return function->portfolio != NULL ? tuner_call_portfolio(function, buffers) : tuner_call_kernel(function, buffers);
}

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int tuner_time(const struct tuner_function *function, void *const *buffers, int64_t number, int64_t repeat, double *samples_s) {
  if (number < 1 || repeat < 1 || samples_s == NULL)
    return tuner_fail(TUNER_ERROR_EXTENT, "%s: timing needs number >= 1, repeat >= 1 and room for the samples", function->symbol);
  for (int64_t sample = 0; sample < repeat; ++sample) {
    double start = now_s();
    for (int64_t i = 0; i < number; ++i) {
      int status = tuner_call(function, buffers);
      if (status != TUNER_OK) return status;
    }
    samples_s[sample] = (now_s() - start) / (double)number;
  }
  return TUNER_OK;
}
