/* Calls from Python without an object for each address. Of Python only functions of its stable ABI are used, which the process has
 * that calls; nothing of it is needed to compile or to load. */
#include "dlpack_exchange.h"

#include "call.h"
#include "tensors.h"
#include "tuner_runtime.h"

#define OF_PYTHON extern __attribute__((weak, visibility("default")))
OF_PYTHON void *PyLong_FromLong(long value);
OF_PYTHON void *PyLong_AsVoidPtr(void *integer);
OF_PYTHON void PyErr_Clear(void);
OF_PYTHON void *PyEval_SaveThread(void);
OF_PYTHON void PyEval_RestoreThread(void *thread);

static int has_strides(const TunerDLTensor *tensor, int64_t ndim, const int64_t *strides) {
  if (tensor->ndim != ndim) return 0;
  int64_t dense = 1;
  for (int64_t i = ndim - 1; i >= 0; --i) {
    const int64_t given = tensor->strides != NULL ? tensor->strides[i] : dense;
    if (tensor->shape[i] != 1 && given != strides[i]) return 0;
    dense *= tensor->shape[i];
  }
  return 1;
}

enum { FLOAT = 2, COMPLEX = 5 }; /* dtype codes of DLPack */

/* A complex tensor is one of floats with both parts as its last dimension. */
static int has_dtype(const TunerDLTensor *tensor, const struct tuner_argument *argument) {
  if (tensor->dtype_code == COMPLEX) return argument->dtype_code == FLOAT && tensor->dtype_bits == 2 * argument->dtype_bits;
  return tensor->dtype_code == argument->dtype_code && tensor->dtype_bits == argument->dtype_bits;
}

static int call(const struct tuner_function *function, const struct tuner_binding *binding, void *const *objects, intptr_t count) {
  void *buffers[TUNER_MAX_ARGUMENTS + 1];
  const int64_t *strides = binding->strides;
  if (binding->api->major != 1 || binding->api->view == NULL)
    return tuner_fail(TUNER_ERROR_DTYPE, "%s: the exchange API is of DLPack %u, expected 1", function->symbol,
                      (unsigned)binding->api->major);
  if (count != function->num_arguments)
    return tuner_fail(TUNER_ERROR_DTYPE, "%s takes %d tensors, got %d", function->symbol, (int)function->num_arguments, (int)count);
  for (intptr_t i = 0; i < count; ++i) {
    TunerDLTensor tensor;
    if (binding->api->view(objects[i], &tensor) != 0) {
      PyErr_Clear();
      return tuner_fail(TUNER_ERROR_DTYPE, "%s: argument %d cannot be viewed by DLPack", function->symbol, (int)i);
    }
    const struct tuner_argument *const argument = &function->arguments[i];
    if (!has_dtype(&tensor, argument))
      return tuner_fail(TUNER_ERROR_DTYPE, "%s: argument %d has another dtype", function->symbol, (int)i);
    if (!argument->is_output) {
      if (!has_strides(&tensor, strides[0], strides + 1))
        return tuner_fail(TUNER_ERROR_SHAPE, "%s: argument %d has other strides", function->symbol, (int)i);
      strides += 1 + strides[0];
    }
    buffers[i] = (char *)tensor.data + tensor.byte_offset;
  }
  buffers[count] = NULL; /* no extent of a portfolio */
  void *const thread = PyEval_SaveThread();
  const int status = tuner_call(function, buffers);
  PyEval_RestoreThread(thread);
  return status;
}

void *tuner_call_exchange(const struct tuner_function *function, void *self, void *const *tensors, intptr_t count) {
  return PyLong_FromLong(call(function, PyLong_AsVoidPtr(self), tensors, count));
}
