/* Calling one kernel: buffer checks and argument packing. A successful call touches no lock and allocates nothing. */
#include "call.h"

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

int tuner_check_buffers(const struct tuner_function *function, void *const *buffers, int64_t rows) {
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
      if (arguments[j].overwritable && buffers[i] == buffers[j]) continue;
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

int tuner_call_kernel(const struct tuner_function *function, void *const *buffers) {
  const struct tuner_function *kernel = tuner_supported(function);
  if (kernel == NULL) return TUNER_ERROR_ISA;
  int status = tuner_check_buffers(function, buffers, 0);
  if (status == TUNER_OK) status = tuner_check_facts(function, buffers, kernel->vector_bytes);
  if (status != TUNER_OK) return status;
  tuner_begin_call(kernel->threads);
  tuner_clear_status();
  if (enter(kernel, buffers) == 0) return TUNER_OK;
  if (tuner_last_status() == TUNER_OK)
    return tuner_fail(TUNER_ERROR_INTERNAL, "%s: the kernel failed without a text", function->symbol);
  return tuner_last_status();
}
