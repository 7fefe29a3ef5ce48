/* The calibration kernel: a float32 matrix product on 48 KiB, which a core's first cache nearly holds. */
#include "pace.h"

#include <stdlib.h>
#include <time.h>

/* Of the matrices; some 50 us. */
enum { SIDE = 64, CALLS = 5 };
#define WARM_UP_S 0.001 /* of calls before those that count */

static float left[SIDE][SIDE], right[SIDE][SIDE], product[SIDE][SIDE];

double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double call_s(void) {
  double start = now_s();
  for (int i = 0; i < SIDE; ++i) {
    for (int j = 0; j < SIDE; ++j) product[i][j] = 0;
    for (int k = 0; k < SIDE; ++k)
      for (int j = 0; j < SIDE; ++j) product[i][j] += left[i][k] * right[k][j];
  }
  __asm__ volatile("" : : "r"(product) : "memory");
  return now_s() - start;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double pace_s(void) {
  double times[CALLS], warm_s = 0;
  for (int i = 0; i < SIDE; ++i)
    for (int j = 0; j < SIDE; ++j) left[i][j] = right[j][i] = 1.0f / (float)(i + j + 1);
  while (warm_s < WARM_UP_S) warm_s += call_s();
  for (int i = 0; i < CALLS; ++i) times[i] = call_s();
  qsort(times, CALLS, sizeof times[0], ascending);
  return times[CALLS / 2];
}
