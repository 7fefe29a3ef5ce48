/* Drives the runtime from many threads for the sanitizers: calls, errors, thread counts, workspace, forks. 0 when all is right. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tuner_runtime.h"

int entry_double(void *, const TunerAny *, int32_t, TunerAny *);
int entry_parallel(void *, const TunerAny *, int32_t, TunerAny *);
int entry_nested(void *, const TunerAny *, int32_t, TunerAny *);
int entry_failing(void *, const TunerAny *, int32_t, TunerAny *);
int entry_workspace(void *, const TunerAny *, int32_t, TunerAny *);
int entry_greedy(void *, const TunerAny *, int32_t, TunerAny *);

enum { COUNT = 1024, THREADS = 8, ROUNDS = 1000 };

static const int64_t shape[] = {COUNT};
static const struct tuner_argument arguments[] = {
    {"X", shape, 4 * COUNT, 1, 2, 32, 0, 0, 0, TUNER_NO_FACT, 0, 0},
    {"Y", shape, 4 * COUNT, 1, 2, 32, 1, 0, 0, TUNER_NO_FACT, 0, 0}};
static atomic_int isa_state;

#define FUNCTION(name) {#name, name, arguments, NULL, &isa_state, 2, 0, 3, NULL, NULL, 0, 0}
static const struct tuner_function right[] = {
    FUNCTION(entry_double), FUNCTION(entry_parallel), FUNCTION(entry_nested), FUNCTION(entry_workspace)};
static const struct tuner_function failing = FUNCTION(entry_failing), greedy = FUNCTION(entry_greedy);

/* Compiled for two kinds of CPU, of which this is the second: the first would fail. */
static const struct tuner_feature impossible[] = {{"impossible", 7, 0, 1, 31, 1u << 30}};
static atomic_int variant_state[3];
static const struct tuner_function lesser = {"lesser", entry_parallel, arguments, NULL, &variant_state[0], 2, 0, 3, NULL, NULL, 0, 0};
static const struct tuner_function better = {"better", entry_failing, arguments, impossible, &variant_state[1], 2, 1, 3, NULL, NULL, 0, 0};
static const struct tuner_function *const both[] = {&better, &lesser};
static const struct tuner_function either = {"either", NULL, arguments, NULL, &variant_state[2], 2, 0, 3, NULL, both, 2, 0};
static const struct tuner_function neither = {"neither", NULL, arguments, NULL, &variant_state[1], 2, 0, 3, NULL, both, 1, 0};

/* Rows of 16 elements: both kernels take 64 of them, any number up to 200 is to be had. */
enum { ROW = 16, MOST = 200 };
static const struct tuner_argument whole[] = {
    {"X", shape, 4 * ROW * MOST, 1, 2, 32, 0, 4 * ROW, 0, TUNER_NO_FACT, 0, 0},
    {"Y", shape, 4 * ROW * MOST, 1, 2, 32, 1, 4 * ROW, 0, TUNER_NO_FACT, 0, 0}};
static const struct tuner_function *const blocks[] = {&right[0], &either};
static const int64_t block_rows[] = {COUNT / ROW, COUNT / ROW};
static const uint8_t plan[MOST + 1] = {[30 ... 90] = 1};
static const struct tuner_portfolio portfolio = {"M", 1, MOST, blocks, block_rows, plan, NULL, 2};
static const struct tuner_function any_rows = {"any_rows", NULL, whole, NULL, NULL, 2, 0, 3, &portfolio, NULL, 0, 0};

/* The buffers are no larger than the rows of the call, so that a sanitizer sees what goes beyond them. */
static int call_rows(int64_t rows) {
  float *in = tuner_alloc(4 * ROW * (size_t)rows), *out = tuner_alloc(4 * ROW * (size_t)rows);
  void *buffers[] = {in, out, (void *)(intptr_t)rows}, *none[] = {in, out, NULL}, *many[] = {in, out, (void *)(intptr_t)(MOST + 1)};
  int wrong = 0;
  for (int i = 0; i < ROW * rows; ++i) in[i] = (float)i;
  wrong += tuner_call(&any_rows, buffers) != TUNER_OK;
  for (int i = 0; i < ROW * rows; ++i) wrong += out[i] != 2 * in[i];
  wrong += tuner_call(&any_rows, none) != TUNER_ERROR_EXTENT || tuner_call(&any_rows, many) != TUNER_ERROR_EXTENT;
  tuner_free(in);
  tuner_free(out);
  return wrong;
}

static int calls(int rounds) {
  float *in = tuner_alloc(4 * COUNT), *out = tuner_alloc(4 * COUNT);
  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) in[i] = (float)i;
  for (int round = 0; round < rounds; ++round) {
    void *buffers[] = {in, out};
    memset(out, 0, 4 * COUNT);
    wrong += tuner_call(&right[round % 4], buffers) != TUNER_OK;
    for (int i = 0; i < COUNT; ++i) wrong += out[i] != 2 * in[i];
    void *misaligned[] = {in, (char *)out + 4}, *same[] = {in, in}, *null[] = {in, NULL};
    wrong += tuner_call(&right[0], misaligned) != TUNER_ERROR_ALIGNMENT;
    wrong += tuner_call(&right[0], same) != TUNER_ERROR_OVERLAP;
    wrong += tuner_call(&right[0], null) != TUNER_ERROR_NULL;
    wrong += tuner_call(&either, buffers) != TUNER_OK || out[COUNT - 1] != 2 * in[COUNT - 1];
    wrong += tuner_call(&neither, buffers) != TUNER_ERROR_ISA || strstr(tuner_last_error(), "lacks impossible") == NULL;
    wrong += call_rows(round % MOST + 1);
    wrong += tuner_call(&failing, buffers) != TUNER_ERROR_INTERNAL || strstr(tuner_last_error(), "the last task gave up") == NULL;
    if (round % 50 == 0) {
      wrong += tuner_call(&greedy, buffers) != TUNER_ERROR_MEMORY;
      tuner_set_num_threads(round / 50 % 5);
    }
  }
  tuner_free(in);
  tuner_free(out);
  return wrong;
}

static void *thread_main(void *result) {
  *(int *)result = calls(ROUNDS);
  return NULL;
}

static int from_threads(void) {
  pthread_t threads[THREADS];
  int wrong[THREADS] = {0}, total = 0;
  for (int i = 0; i < THREADS; ++i) {
    if (pthread_create(&threads[i], NULL, thread_main, &wrong[i]) != 0) return 1;
  }
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], NULL);
    total += wrong[i];
  }
  return total;
}

static int sleeping_pool(void) {
  struct timespec pause = {0, 2000000};
  int wrong = 0;
  for (int i = 0; i < 20; ++i) {
    nanosleep(&pause, NULL); /* longer than the pool spins */
    wrong += calls(2);
  }
  return wrong;
}

static int from_children(void) {
  int wrong = 0;
  for (int i = 0; i < 5; ++i) {
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) _exit(calls(8) == 0 ? 0 : 1);
    int status = 0;
    wrong += waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    wrong += calls(4);
  }
  return wrong;
}

/* Forks while eight threads use the pool: the child must not find it locked. */
static int forks_under_load(void) {
  pthread_t threads[THREADS];
  int wrong[THREADS] = {0}, total = 0;
  for (int i = 0; i < THREADS; ++i) {
    if (pthread_create(&threads[i], NULL, thread_main, &wrong[i]) != 0) return 1;
  }
  total += from_children();
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], NULL);
    total += wrong[i];
  }
  return total;
}

int main(int count, char **words) {
  int forks = count > 1 && strcmp(words[1], "forks") == 0;
  int load = count > 2 && strcmp(words[2], "load") == 0;
  int wrong = calls(ROUNDS) + sleeping_pool() + from_threads() + (forks ? from_children() : 0) + (load ? forks_under_load() : 0);
  if (wrong) fprintf(stderr, "%d wrong, last error: %s\n", wrong, tuner_last_error());
  return wrong != 0;
}
