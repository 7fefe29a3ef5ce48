/* Calling a kernel: buffer checks, instruction-set check, argument packing, the error text, and the timing loop.
 * A successful call touches no lock and allocates nothing. */
#define _GNU_SOURCE
#include "tuner_runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static __thread char error_text[1024];
static __thread int error_status;

const char *tuner_last_error(void) { return error_text; }

int tuner_last_status(void) { return error_status; }

int tuner_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  error_status = status;
  return status;
}

/* Called by generated code before it returns -1: an argument is not what it was compiled for, or an assertion in it failed. */
TUNER_HIDDEN void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  size_t used = (size_t)snprintf(error_text, sizeof error_text, "%s: ", kind);
  for (int32_t i = 0; i < count && used < sizeof error_text - 1; ++i) {
    if (parts[i] != NULL) {
      int written = snprintf(error_text + used, sizeof error_text - used, "%s", parts[i]);
      used += written > 0 ? (size_t)written : 0;
    }
  }
  error_status = TUNER_ERROR_INTERNAL;
}

#if defined(__x86_64__)
static uint64_t saved_registers(void) {
  uint32_t low, high, a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((uint64_t)high << 32) | low;
}

/* Whether TUNED_CPU_WITHOUT, features with commas between them, names this one: so that what a lesser CPU gets can be tried. */
static int hidden(const char *name) {
  const char *list = getenv("TUNED_CPU_WITHOUT");
  size_t length = strlen(name);
  while (list != NULL && *list != '\0') {
    size_t word = strcspn(list, ",");
    if (word == length && strncmp(list, name, length) == 0) return 1;
    list += word + (list[word] == ',');
  }
  return 0;
}

static int has_feature(const struct tuner_feature *feature) {
  uint32_t regs[4];
  if (hidden(feature->name)) return 0;
  if (feature->xcr0 != 0 && (saved_registers() & feature->xcr0) != feature->xcr0) return 0;
  if (!__get_cpuid_count(feature->leaf, feature->subleaf, &regs[0], &regs[1], &regs[2], &regs[3])) return 0;
  return (regs[feature->reg] >> feature->bit) & 1u;
}
#else
/* Elsewhere libraries are built for the machine's own baseline and carry no feature list that could be looked up. */
static int has_feature(const struct tuner_feature *feature) {
  (void)feature;
  return 1;
}
#endif

/* The name of a feature that the kernel wants and this CPU lacks; null when it has all. */
static const char *lacking(const struct tuner_function *function) {
  for (int32_t i = 0; i < function->num_features; ++i) {
    if (!has_feature(&function->features[i])) return function->features[i].name;
  }
  return NULL;
}

static const struct tuner_function *refuse_isa(const struct tuner_function *function, const char *missing) {
  tuner_fail(TUNER_ERROR_ISA, "%s: this CPU lacks %s, for which the kernel was compiled; export one for this machine",
             function->symbol, missing);
  return NULL;
}

/* The kernel to call on this CPU: the function itself, or the first of its variants that the CPU has all features for.
 * Null, with the error, where there is none. What was found is remembered; looking twice at once finds the same. */
static const struct tuner_function *supported(const struct tuner_function *function) {
  int state = atomic_load_explicit(function->isa_state, memory_order_relaxed);
  const char *missing = NULL;
  if (function->num_variants == 0) {
    if (state == 0 && (missing = lacking(function)) != NULL) return refuse_isa(function, missing);
    if (state == 0) atomic_store_explicit(function->isa_state, 1, memory_order_relaxed);
    return function;
  }
  if (state == 0) {
    while (state < function->num_variants && (missing = lacking(function->variants[state])) != NULL) state += 1;
    if (missing != NULL) return refuse_isa(function, missing);
    state += 1;
    atomic_store_explicit(function->isa_state, state, memory_order_relaxed);
  }
  return function->variants[state - 1];
}

/* Bytes of an argument in a call with so many rows; of a single kernel, in every call. */
static uint64_t size_of(const struct tuner_function *function, int32_t i, int64_t rows) {
  const struct tuner_argument *argument = &function->arguments[i];
  return argument->row_bytes != 0 ? argument->row_bytes * (uint64_t)rows : argument->nbytes;
}

static int overlap(const struct tuner_function *function, void *const *buffers, int32_t a, int32_t b, int64_t rows) {
  uintptr_t first = (uintptr_t)buffers[a], second = (uintptr_t)buffers[b];
  return first < second + size_of(function, b, rows) && second < first + size_of(function, a, rows);
}

static int check_buffers(const struct tuner_function *function, void *const *buffers, int64_t rows) {
  const struct tuner_argument *arguments = function->arguments;
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    if (buffers[i] == NULL)
      return tuner_fail(TUNER_ERROR_NULL, "%s: argument %d (%s) is a null pointer", function->symbol, (int)i, arguments[i].name);
    if ((uintptr_t)buffers[i] % TUNER_ALIGNMENT != 0)
      return tuner_fail(TUNER_ERROR_ALIGNMENT, "%s: argument %d (%s) at %p is not aligned to %d bytes; use this library's allocator",
                        function->symbol, (int)i, arguments[i].name, buffers[i], TUNER_ALIGNMENT);
  }
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    if (!arguments[i].is_output) continue;
    for (int32_t j = 0; j < function->num_arguments; ++j) {
      if (j == i || (arguments[j].is_output && j < i)) continue;
      if (overlap(function, buffers, i, j, rows))
        return tuner_fail(TUNER_ERROR_OVERLAP, "%s: output %s (%llu bytes at %p) overlaps %s (%llu bytes at %p)", function->symbol,
                          arguments[i].name, (unsigned long long)size_of(function, i, rows), buffers[i], arguments[j].name,
                          (unsigned long long)size_of(function, j, rows), buffers[j]);
    }
  }
  return TUNER_OK;
}

static int enter(const struct tuner_function *function, void *const *buffers) {
  TunerDLTensor tensors[TUNER_MAX_ARGUMENTS];
  TunerAny packed[TUNER_MAX_ARGUMENTS];
  TunerAny result = {TUNER_ANY_NONE, 0, {0}};
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    const struct tuner_argument *argument = &function->arguments[i];
    tensors[i] = (TunerDLTensor){.data = buffers[i], .device_type = 1, .ndim = argument->ndim, .dtype_code = argument->dtype_code,
                                 .dtype_bits = argument->dtype_bits, .dtype_lanes = 1, .shape = argument->shape};
    packed[i] = (TunerAny){TUNER_ANY_DLTENSOR, 0, {.v_ptr = &tensors[i]}};
  }
  return function->entry(NULL, packed, function->num_arguments, &result);
}

static int call_portfolio(const struct tuner_function *function, void *const *buffers) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  int64_t rows = (int64_t)(intptr_t)buffers[function->num_arguments];
  int status = tuner_check_rows(function, rows);
  for (int32_t i = 0; status == TUNER_OK && i < portfolio->num_kernels; ++i) {
    if (supported(portfolio->kernels[i]) == NULL) status = TUNER_ERROR_ISA;
  }
  if (status == TUNER_OK) status = check_buffers(function, buffers, rows);
  return status == TUNER_OK ? tuner_call_rows(function, buffers, rows) : status;
}

int tuner_call(const struct tuner_function *function, void *const *buffers) {
  if (function->portfolio != NULL) return call_portfolio(function, buffers);
  const struct tuner_function *kernel = supported(function);
  if (kernel == NULL) return TUNER_ERROR_ISA;
  int status = check_buffers(function, buffers, 0);
  if (status != TUNER_OK) return status;
  tuner_begin_call(kernel->threads);
  error_status = TUNER_OK;
  if (enter(kernel, buffers) == 0) return TUNER_OK;
  if (error_status == TUNER_OK) return tuner_fail(TUNER_ERROR_INTERNAL, "%s: the kernel failed without a text", function->symbol);
  return error_status;
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
