/* Calling one kernel: buffer checks and argument packing. A successful call touches no lock and allocates nothing. */
#include "call.h"

#include <stddef.h>

#include "cpu_features.h"
#include "facts.h"
#include "thread_pool.h"
#include "tvm_abi.h"
#include "workspace.h"

/* Bytes of an argument in a call with so many rows; of a single kernel, in every call. */
static uint64_t size_of(const struct tuner_function *function, int32_t i, int64_t rows) {
  const struct tuner_argument *argument = &function->arguments[i];
  return argument->row_bytes != 0 ? argument->row_bytes * (uint64_t)rows : argument->nbytes;
}

static int overlap(const struct tuner_function *function, void *const *buffers, int32_t a, int32_t b, int64_t rows) {
  uintptr_t first = (uintptr_t)buffers[a], second = (uintptr_t)buffers[b];
  return first < second + size_of(function, b, rows) && second < first + size_of(function, a, rows);
}

/* Says which output overlaps what. */
static int fail_overlap(const struct tuner_function *function, void *const *buffers, int64_t rows) {
  const struct tuner_argument *arguments = function->arguments;
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    if (!arguments[i].is_output) continue;
    for (int32_t j = 0; j < function->num_arguments; ++j) {
      if (j == i || (arguments[j].is_output && j < i)) continue;
      if (arguments[j].overwritable && buffers[i] == buffers[j]) continue;
      if (overlap(function, buffers, i, j, rows))
        return tuner_fail(TUNER_ERROR_OVERLAP, "%s: output %s (%llu bytes at %p) overlaps %s (%llu bytes at %p)", function->symbol,
                          arguments[i].name, (unsigned long long)size_of(function, i, rows), buffers[i], arguments[j].name,
                          (unsigned long long)size_of(function, j, rows), buffers[j]);
    }
  }
  return tuner_fail(TUNER_ERROR_INTERNAL, "%s: buffers overlap, but no two of them", function->symbol);
}

/* Whether an argument comes before another one by address, of equal ones the inputs first. */
static int is_before(const struct tuner_function *function, void *const *buffers, int32_t a, int32_t b) {
  const uintptr_t first = (uintptr_t)buffers[a], second = (uintptr_t)buffers[b];
  return first != second ? first < second : function->arguments[a].is_output < function->arguments[b].is_output;
}

/* Shell's sort with the gaps of Ciura (2001): hundreds of buffers are too many for an insertion sort. */
static void sort_by_address(const struct tuner_function *function, void *const *buffers, int16_t *order) {
  static const int32_t gaps[] = {301, 132, 57, 23, 10, 4, 1};
  for (int32_t i = 0; i < function->num_arguments; ++i) order[i] = (int16_t)i;
  for (size_t g = 0; g < sizeof gaps / sizeof *gaps; ++g) {
    for (int32_t i = gaps[g]; i < function->num_arguments; ++i) {
      const int16_t moved = order[i];
      int32_t place = i;
      for (; place >= gaps[g] && is_before(function, buffers, moved, order[place - gaps[g]]); place -= gaps[g])
        order[place] = order[place - gaps[g]];
      order[place] = moved;
    }
  }
}

/* Whether no output overlaps anything but an input that it may have the memory of, which begins where it does. */
static int are_apart(const struct tuner_function *function, void *const *buffers, int64_t rows) {
  int16_t order[TUNER_MAX_ARGUMENTS];
  sort_by_address(function, buffers, order);
  /* Where the outputs and the inputs so far end. An overwritable input counts behind the address where it begins. */
  uintptr_t outputs_end = 0, inputs_end = 0, begun_end = 0, begun = 0;
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    const struct tuner_argument *argument = &function->arguments[order[i]];
    const uintptr_t address = (uintptr_t)buffers[order[i]], end = address + size_of(function, order[i], rows);
    if (end == address) continue;
    if (address != begun && begun_end > inputs_end) inputs_end = begun_end;
    if (outputs_end > address || (argument->is_output && inputs_end > address)) return 0;
    uintptr_t *const last = argument->is_output ? &outputs_end : argument->overwritable ? &begun_end : &inputs_end;
    if (argument->overwritable) begun = address;
    if (end > *last) *last = end;
  }
  return 1;
}

int tuner_check_buffers(const struct tuner_function *function, void *const *buffers, int64_t rows) {
  const struct tuner_argument *arguments = function->arguments;
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    if (buffers[i] == NULL)
      return tuner_fail(TUNER_ERROR_NULL, "%s: argument %d (%s) is a null pointer", function->symbol, (int)i, arguments[i].name);
    if ((uintptr_t)buffers[i] % TUNER_ALIGNMENT != 0)
      return tuner_fail(TUNER_ERROR_ALIGNMENT, "%s: argument %d (%s) at %p is not aligned to %d bytes; use this library's allocator",
                        function->symbol, (int)i, arguments[i].name, buffers[i], TUNER_ALIGNMENT);
  }
  return are_apart(function, buffers, rows) ? TUNER_OK : fail_overlap(function, buffers, rows);
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

int tuner_call_kernel(const struct tuner_function *function, void *const *buffers) {
  const struct tuner_function *kernel = tuner_supported(function);
  if (kernel == NULL) return TUNER_ERROR_ISA;
  tuner_begin_call(kernel->threads);
  int status = tuner_check_buffers(function, buffers, 0);
  if (status == TUNER_OK) status = tuner_check_facts(function, buffers, kernel->vector_bytes);
  if (status != TUNER_OK) return status;
  tuner_clear_status();
  if (enter(kernel, buffers) == 0) return TUNER_OK;
  if (tuner_last_status() == TUNER_OK)
    return tuner_fail(TUNER_ERROR_INTERNAL, "%s: the kernel failed without a text", function->symbol);
  return tuner_last_status();
}
