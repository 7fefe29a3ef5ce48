/* Times what a call of an exported function adds to the kernel's own code, and what launching two threads takes.
 * Prints one line of JSON, in nanoseconds: medians over samples; from sleep also the 90th percentile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tvm_abi.h"

int nothing(const float *in, float *out); /* exported functions of the library */
int launch(const float *in, float *out);
void *kit_alloc(size_t nbytes);

int direct_entry(void *, const TunerAny *, int32_t, TunerAny *); /* the kernel of `nothing`, linked into this program */

enum { SAMPLES = 51, CALLS = 20000, LAUNCHES = 500, SLEEPS = 201 };

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double quantile(double *samples, int count, double share) {
  qsort(samples, (size_t)count, sizeof *samples, ascending);
  return samples[(int)(share * (count - 1))];
}

int main(void) {
  double samples[SLEEPS];
  float *in = kit_alloc(64), *out = kit_alloc(64);
  const int64_t shape[] = {16};
  TunerDLTensor tensors[2] = {{in, 1, 0, 1, 2, 32, 1, shape, NULL, 0}, {out, 1, 0, 1, 2, 32, 1, shape, NULL, 0}};
  TunerAny packed[2] = {{TUNER_ANY_DLTENSOR, 0, {.v_ptr = &tensors[0]}}, {TUNER_ANY_DLTENSOR, 0, {.v_ptr = &tensors[1]}}};
  TunerAny result = {TUNER_ANY_NONE, 0, {0}};
  int failed = 0;
  memset(in, 0, 64);

  for (int sample = 0; sample < SAMPLES; ++sample) {
    double start = now_ns();
    for (int i = 0; i < CALLS; ++i) failed |= direct_entry(NULL, packed, 2, &result);
    samples[sample] = (now_ns() - start) / CALLS;
  }
  double direct = quantile(samples, SAMPLES, 0.5);
  for (int sample = 0; sample < SAMPLES; ++sample) {
    double start = now_ns();
    for (int i = 0; i < CALLS; ++i) failed |= nothing(in, out);
    samples[sample] = (now_ns() - start) / CALLS;
  }
  double exported = quantile(samples, SAMPLES, 0.5);
  for (int sample = 0; sample < SAMPLES; ++sample) {
    double start = now_ns();
    for (int i = 0; i < LAUNCHES; ++i) failed |= launch(in, out);
    samples[sample] = (now_ns() - start) / LAUNCHES;
  }
  double spinning = quantile(samples, SAMPLES, 0.5);
  for (int sample = 0; sample < SLEEPS; ++sample) {
    struct timespec pause = {0, 3000000}; /* the pool spins for 0.2 ms */
    nanosleep(&pause, NULL);
    double start = now_ns();
    failed |= launch(in, out);
    samples[sample] = now_ns() - start;
  }
  double asleep = quantile(samples, SLEEPS, 0.5), late = quantile(samples, SLEEPS, 0.9);
  printf("{\"direct_ns\": %.2f, \"exported_ns\": %.2f, \"launch_spinning_ns\": %.1f, \"launch_asleep_ns\": %.0f, "
         "\"launch_asleep_p90_ns\": %.0f}\n", direct, exported, spinning, asleep, late);
  return failed;
}
