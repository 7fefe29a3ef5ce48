/* The runtime inside every tuned library: calling a kernel with checks, errors, threads, workspace, timing.
 * Generated wrappers include this file; users of a library never do (they get include/<name>.h).
 * Everything here is hidden, so each library carries its own copy and two of them live in one process without meeting. */
#ifndef TUNER_RUNTIME_H
#define TUNER_RUNTIME_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "tvm_abi.h"

#define TUNER_HIDDEN __attribute__((visibility("hidden")))
#define TUNER_EXPORT __attribute__((visibility("default")))

enum {
  TUNER_ALIGNMENT = 64,     /* bytes; generated code uses aligned vector loads of up to this width */
  TUNER_MAX_ARGUMENTS = 64, /* tensors of one function */
  TUNER_MAX_THREADS = 256,
};

/* What a call returns. The numbers are part of the ABI. */
enum tuner_status {
  TUNER_OK = 0,
  TUNER_ERROR_NULL = 1,
  TUNER_ERROR_ALIGNMENT = 2,
  TUNER_ERROR_OVERLAP = 3,
  TUNER_ERROR_EXTENT = 4,
  TUNER_ERROR_ISA = 5,
  TUNER_ERROR_MEMORY = 6,
  TUNER_ERROR_INTERNAL = 7,
};

struct tuner_argument {
  const char *name;
  const int64_t *shape;
  uint64_t nbytes;
  int32_t ndim;
  uint8_t dtype_code;
  uint8_t dtype_bits;
  uint8_t is_output;
  uint64_t row_bytes; /* of one row, where the function is a portfolio and this argument has a row for each; else 0 */
};

/* One instruction-set feature: the CPUID bit that announces it and the XCR0 bits by which the system saves its registers. */
struct tuner_feature {
  const char *name;
  uint32_t leaf, subleaf, reg, bit; /* reg: 0 eax, 1 ebx, 2 ecx, 3 edx */
  uint32_t xcr0;
};

struct tuner_function;

/* Kernels for fixed numbers of rows behind one function; `plan` is indexed by the rows left, 0 to high. */
struct tuner_portfolio {
  const char *extent; /* its name, for messages */
  int64_t low, high;
  const struct tuner_function *const *kernels;
  const int64_t *rows; /* of each kernel */
  const uint8_t *plan; /* the kernel that comes next */
  int32_t num_kernels;
};

struct tuner_function {
  const char *symbol;
  TunerEntry entry;
  const struct tuner_argument *arguments;
  const struct tuner_feature *features;
  atomic_int *isa_state; /* 0 not looked at yet or one is missing, 1 all features present */
  int32_t num_arguments;
  int32_t num_features;
  int32_t threads; /* threads the kernel was tuned for */
  const struct tuner_portfolio *portfolio; /* null for a single kernel; else `entry` and `features` are not used */
  /* The same kernel compiled for several kinds of CPU, the best first; the first one whose features are all here is called.
   * This function then has no code of its own, and isa_state is 0 or the place of that one, counted from 1. */
  const struct tuner_function *const *variants;
  int32_t num_variants; /* 0 for a kernel that is compiled once */
};

/* Checks the buffers and calls the kernel. `buffers` holds one pointer for each argument; of a portfolio, the number of rows as
 * an intptr_t after them. Returns an enum tuner_status. */
TUNER_HIDDEN int tuner_call(const struct tuner_function *function, void *const *buffers);

/* Calls the kernel `number` times for each of `repeat` samples; samples_s[i] is the mean seconds of one call (CLOCK_MONOTONIC). */
TUNER_HIDDEN int tuner_time(const struct tuner_function *function, void *const *buffers, int64_t number, int64_t repeat,
                            double *samples_s);

/* Calling thread's last error text; empty before the first error; valid until its next error. */
TUNER_HIDDEN const char *tuner_last_error(void);
TUNER_HIDDEN int tuner_last_status(void);
TUNER_HIDDEN int tuner_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The blocks of a portfolio for so many rows; everything has been checked. And whether there may be so many. */
TUNER_HIDDEN int tuner_call_rows(const struct tuner_function *function, void *const *buffers, int64_t rows);
TUNER_HIDDEN int tuner_check_rows(const struct tuner_function *function, int64_t rows);

/* Memory as kernels get it for temporaries: kept by the thread for its next call. */
TUNER_HIDDEN void *tuner_workspace(uint64_t nbytes);
TUNER_HIDDEN void tuner_workspace_free(void *memory);

/* 64-byte aligned memory; null and an error text when there is none. */
TUNER_HIDDEN void *tuner_alloc(size_t nbytes);
TUNER_HIDDEN void tuner_free(void *memory);

/* Threads for all later calls of this library, 1..TUNER_MAX_THREADS; 0: as many as each kernel was tuned for. */
TUNER_HIDDEN int tuner_set_num_threads(int count);
/* Threads a call of a kernel tuned for `tuned` threads may use now; noted for the calling thread's next launches. */
TUNER_HIDDEN void tuner_begin_call(int tuned);

#endif
