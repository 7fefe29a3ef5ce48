/* This core's own limits: float32 fused multiply-add rate, and read, write and copy bandwidth by working-set size.
 * Usage: limits SECONDS MAX_BYTES CORE. Prints one JSON object; FLOP/s count a multiply-add as 2, bytes/s count bytes moved.
 * Vectors are the compiler's own extension, so the same text serves every instruction set; -march decides their width. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#elif defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS > 128
#define VECTOR_BYTES (__ARM_FEATURE_SVE_BITS / 8)
#else
#define VECTOR_BYTES 16
#endif
#define LANES (VECTOR_BYTES / 4)
/* Enough chains to hide the latency of 4 to 5 cycles on two or more units, few enough for 16 registers with their two operands. */
#define CHAINS 12
#define TRIALS 15
#define SIZE_TRIALS 5
#define MOST_SIZES 32

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds this thread has run: a rate of arithmetic must not count the time in which others had the core. */
static double ran_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static vector all(float value) {
  vector filled;
  for (int i = 0; i < LANES; ++i) filled[i] = value;
  return filled;
}

/* The chains are locals of one loop so that they stay in registers; -ffp-contract=fast makes each step one instruction. All lanes of
 * all chains are wanted, by a function that nothing is known of where it is called: else compilers leave chains out. */
__attribute__((noinline)) static void multiply_adds(long steps) {
  vector sum[CHAINS], scale = all(0.9999999f), offset = all(1e-7f);
  for (int i = 0; i < CHAINS; ++i) sum[i] = all(0.1f * (float)(i + 1));
  for (long step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; ++i) sum[i] = sum[i] * scale + offset;
  }
  __asm__ volatile("" : : "r"(sum) : "memory");
}

static void read_all(const vector *data, size_t count) {
  vector sum[8];
  for (int i = 0; i < 8; ++i) sum[i] = all(0);
  for (size_t at = 0; at + 8 <= count; at += 8) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sum[i] += data[at + i];
  }
  __asm__ volatile("" : : "r"(sum) : "memory");
}

static void touch(char kind, char *data, size_t bytes, int value) {
  if (kind == 'r') read_all((const vector *)data, bytes / sizeof(vector));
  if (kind == 'w') memset(data, value, bytes);
  if (kind == 'c') memcpy(data + bytes / 2, data, bytes / 2);
  __asm__ volatile("" : : "r"(data) : "memory");
}

/* Bytes a second, the best of a few: disturbances only ever slow memory down. */
static double bandwidth(char kind, char *data, size_t bytes, double seconds) {
  double best = 0;
  for (int trial = 0; trial < SIZE_TRIALS; ++trial) {
    long calls = 0;
    double start = now_s(), spent;
    do {
      for (int i = 0; i < 4; ++i) touch(kind, data, bytes, (int)++calls);
      spent = now_s() - start;
    } while (spent < seconds / SIZE_TRIALS);
    double rate = (double)bytes * (double)calls / spent;
    if (rate > best) best = rate;
  }
  return best;
}

/* A row of each size: working set in bytes, then bytes a second of reading, writing and copying. For an agent TUNER_AGENT is the
 * bytes of the vectors that kernels have there. */
int tuner_limits(double seconds, size_t largest, double fma[2], double rows[][4], int most) {
#if defined(TUNER_AGENT) && (VECTOR_BYTES < TUNER_AGENT || defined(__riscv) || (defined(__x86_64__) && !defined(__FMA__)))
  return 0; /* compiled without the core's vectors: that would be no limit */
#endif
  double rates[TRIALS], flops_of_step = 2.0 * LANES * CHAINS;
  long steps = 100000;
  double start = ran_s();
  multiply_adds(steps);
  steps = (long)((double)steps * (0.3 * seconds / TRIALS) / (ran_s() - start)) + 1000;
  for (int trial = 0; trial < TRIALS; ++trial) {
    start = ran_s();
    multiply_adds(steps);
    rates[trial] = flops_of_step * (double)steps / (ran_s() - start);
  }
  qsort(rates, TRIALS, sizeof rates[0], ascending);
  fma[0] = rates[TRIALS / 2];
  fma[1] = rates[TRIALS - 1];

  int sizes = 0, rows_made = 0;
  for (size_t bytes = 16 << 10; bytes <= largest; bytes *= 2) ++sizes;
  double share = 0.7 * seconds / (3.0 * (sizes > 0 ? sizes : 1));
  for (size_t bytes = 16 << 10; bytes <= largest && rows_made < most; bytes *= 2) {
    char *data = aligned_alloc(4096, bytes);
    if (data == NULL) break;
    memset(data, 1, bytes);
    double *row = rows[rows_made++];
    row[0] = (double)bytes;
    row[1] = bandwidth('r', data, bytes, share);
    row[2] = bandwidth('w', data, bytes, share);
    row[3] = bandwidth('c', data, bytes, share);
    free(data);
  }
  return rows_made;
}

#ifndef TUNER_AGENT
int main(int count, char **words) {
  double seconds = count > 1 ? atof(words[1]) : 3.0;
  size_t largest = count > 2 ? strtoull(words[2], NULL, 10) : (size_t)256 << 20;
  if (count > 3) { /* before any memory is touched, so that it is the core's own node's */
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(atoi(words[3]), &core);
    if (sched_setaffinity(0, sizeof core, &core) != 0) {
      perror("sched_setaffinity");
      return 1;
    }
  }
  double fma[2], rows[MOST_SIZES][4];
  int made = tuner_limits(seconds, largest, fma, rows, MOST_SIZES);
  printf("{\"fma_flops\": %.6e, \"fma_flops_best\": %.6e, \"bandwidth\": [", fma[0], fma[1]);
  for (int i = 0; i < made; ++i)
    printf("%s{\"working_set_bytes\": %.0f, \"read\": %.6e, \"write\": %.6e, \"copy\": %.6e}", i == 0 ? "" : ", ", rows[i][0],
           rows[i][1], rows[i][2], rows[i][3]);
  printf("]}\n");
  return 0;
}
#endif
