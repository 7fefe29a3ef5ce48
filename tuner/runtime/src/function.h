/* What the generated tables of a library say of its functions. */
#ifndef TUNER_FUNCTION_H
#define TUNER_FUNCTION_H

#include <stdatomic.h>
#include <stdint.h>

#include "tvm_abi.h"

enum { TUNER_MAX_ARGUMENTS = 512 }; /* tensors of one function */

/* What is declared of an input's elements: nothing, their range, or that they are the pointers of compressed rows as well. */
enum tuner_fact { TUNER_NO_FACT = 0, TUNER_WITHIN = 1, TUNER_SPLITS = 2 };

struct tuner_argument {
  const char *name;
  const int64_t *shape;
  uint64_t nbytes;
  int32_t ndim;
  uint8_t dtype_code;
  uint8_t dtype_bits;
  uint8_t is_output;
  uint64_t row_bytes; /* of one row, where the function is a portfolio and this argument has a row for each; else 0 */
  uint8_t overwritable; /* of an input: an output may have the same memory */
  uint8_t fact;         /* of an input of 32 or 64 bits: an enum tuner_fact */
  int64_t fact_start, fact_stop; /* its elements are from the first to less than the second */
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
  const char *listed;  /* the extents as text, where only those of kernels are taken; else null */
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
  int32_t vector_bytes; /* on x86: 64 or 32 where the features have AVX-512 or AVX2; else 0 */
};

#endif
