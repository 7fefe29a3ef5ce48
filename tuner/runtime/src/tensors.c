/* Calls of a function with tensors instead of pointers. */
#include "tensors.h"

#include <stdio.h>
#include <string.h>

#include "call.h"
#include "tuner_runtime.h"
#include "workspace.h"

enum { DIMENSIONS_TEXT = 256, MOST_DIMENSIONS = 64, DEVICE_CPU = 1 };

/* Where `rows` is not 0, that many stand in the place of the first extent. */
static void write_shape(char *text, const int64_t *shape, int32_t ndim, int64_t rows) {
  size_t used = (size_t)snprintf(text, DIMENSIONS_TEXT, "(");
  for (int32_t i = 0; i < ndim && used < DIMENSIONS_TEXT - 1; ++i)
    used += (size_t)snprintf(text + used, DIMENSIONS_TEXT - used, i == 0 ? "%lld" : ", %lld",
                             (long long)(i == 0 && rows != 0 ? rows : shape[i]));
  if (used < DIMENSIONS_TEXT - 1) snprintf(text + used, DIMENSIONS_TEXT - used, ")");
}

static const char *dtype_name(uint8_t code) {
  static const char *const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  return code < sizeof names / sizeof names[0] ? names[code] : "dtype code ";
}

static int refuse_dtype(const struct tuner_function *function, const struct tuner_argument *argument, const TunerDLTensor *tensor) {
  char lanes[16] = "";
  if (tensor->dtype_lanes != 1) snprintf(lanes, sizeof lanes, "x%d", tensor->dtype_lanes);
  return tuner_fail(TUNER_ERROR_DTYPE, "%s: %s has dtype %s%d%s, expected %s%d", function->symbol, argument->name,
                    dtype_name(tensor->dtype_code), tensor->dtype_bits, lanes, dtype_name(argument->dtype_code),
                    argument->dtype_bits);
}

static int refuse_shape(const struct tuner_function *function, const struct tuner_argument *argument, const TunerDLTensor *tensor,
                        int64_t rows) {
  char given[DIMENSIONS_TEXT], expected[DIMENSIONS_TEXT];
  write_shape(given, tensor->shape, tensor->ndim, 0);
  write_shape(expected, argument->shape, argument->ndim, rows);
  return tuner_fail(TUNER_ERROR_SHAPE, "%s: %s has shape %s, expected %s", function->symbol, argument->name, given, expected);
}

static int is_dense(const TunerDLTensor *tensor) {
  if (tensor->strides == NULL) return 1;
  int64_t expected = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) return 0;
    expected *= tensor->shape[i];
  }
  return 1;
}

/* Whether a tensor is what an argument takes; `rows` as in write_shape. */
static int check_tensor(const struct tuner_function *function, const struct tuner_argument *argument, const TunerDLTensor *tensor,
                        int64_t rows) {
  if (tensor == NULL) return tuner_fail(TUNER_ERROR_NULL, "%s: %s is no tensor", function->symbol, argument->name);
  if (tensor->device_type != DEVICE_CPU)
    return tuner_fail(TUNER_ERROR_DEVICE, "%s: %s is on a device of type %d, expected the CPU (%d)", function->symbol,
                      argument->name, (int)tensor->device_type, DEVICE_CPU);
  if (tensor->dtype_code != argument->dtype_code || tensor->dtype_bits != argument->dtype_bits || tensor->dtype_lanes != 1)
    return refuse_dtype(function, argument, tensor);
  if (tensor->ndim < 0 || tensor->ndim > MOST_DIMENSIONS || (tensor->ndim > 0 && tensor->shape == NULL))
    return tuner_fail(TUNER_ERROR_SHAPE, "%s: %s has %d dimensions, expected %d", function->symbol, argument->name,
                      (int)tensor->ndim, (int)argument->ndim);
  if (tensor->ndim != argument->ndim) return refuse_shape(function, argument, tensor, rows);
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] != (i == 0 && rows != 0 ? rows : argument->shape[i])) return refuse_shape(function, argument, tensor, rows);
  }
  if (!is_dense(tensor))
    return tuner_fail(TUNER_ERROR_SHAPE, "%s: %s has strides, expected a dense, row-major tensor; copy it", function->symbol,
                      argument->name);
  return TUNER_OK;
}

/* The extent of a portfolio that takes a range: the first extent of an argument that has it. */
static int find_rows(const struct tuner_function *function, const TunerDLTensor *const *tensors, int32_t count, int64_t *rows) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  for (int32_t i = 0; i < count; ++i) {
    const TunerDLTensor *tensor = tensors[i];
    if (function->arguments[i].row_bytes == 0 || tensor == NULL || tensor->ndim < 1 || tensor->shape == NULL) continue;
    *rows = tensor->shape[0];
    if (*rows >= portfolio->low && *rows <= portfolio->high) return TUNER_OK;
    return tuner_fail(TUNER_ERROR_EXTENT, "%s: %s is %lld, outside its range %lld to %lld", function->symbol, portfolio->extent,
                      (long long)*rows, (long long)portfolio->low, (long long)portfolio->high);
  }
  return TUNER_OK; /* check_tensor says what is wrong */
}

/* The extent of a portfolio that takes listed ones: that of the kernel which has just these shapes. */
static int find_listed(const struct tuner_function *function, const TunerDLTensor *const *tensors, int32_t count, int64_t *rows,
                       const struct tuner_argument **arguments) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  int status = TUNER_OK;
  for (int32_t k = 0; k < portfolio->num_kernels; ++k) {
    const struct tuner_function *kernel = portfolio->kernels[k];
    status = TUNER_OK;
    for (int32_t i = 0; status == TUNER_OK && i < count; ++i)
      status = check_tensor(function, &kernel->arguments[i], tensors[i], 0);
    if (status == TUNER_OK) {
      *arguments = kernel->arguments;
      *rows = portfolio->rows[k];
      return TUNER_OK;
    }
    if (status != TUNER_ERROR_SHAPE) return status;
  }
  return tuner_fail(TUNER_ERROR_EXTENT, "%s: the tensors' shapes are those of no %s among %s", function->symbol, portfolio->extent,
                    portfolio->listed);
}

int tuner_check_tensors(const struct tuner_function *function, const TunerDLTensor *const *tensors, int32_t count, int64_t *rows,
                        const struct tuner_argument **arguments) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  *arguments = function->arguments;
  if (portfolio != NULL && portfolio->listed != NULL) return find_listed(function, tensors, count, rows, arguments);
  int status = portfolio != NULL ? find_rows(function, tensors, count, rows) : TUNER_OK;
  for (int32_t i = 0; status == TUNER_OK && i < count; ++i) {
    const struct tuner_argument *argument = &function->arguments[i];
    status = check_tensor(function, argument, tensors[i], argument->row_bytes != 0 ? *rows : 0);
  }
  return status;
}

static uint64_t bytes_of(const TunerDLTensor *tensor) {
  uint64_t bytes = (uint64_t)tensor->dtype_bits / 8;
  for (int32_t i = 0; i < tensor->ndim; ++i) bytes *= (uint64_t)tensor->shape[i];
  return bytes;
}

int tuner_call_tensors(const struct tuner_function *function, const TunerDLTensor *const *tensors, int copies) {
  void *buffers[TUNER_MAX_ARGUMENTS + 1], *copied[TUNER_MAX_ARGUMENTS] = {NULL};
  const struct tuner_argument *arguments;
  int64_t rows = 0;
  int status = tuner_check_tensors(function, tensors, function->num_arguments, &rows, &arguments);
  if (status != TUNER_OK) return status;
  for (int32_t i = 0; status == TUNER_OK && i < function->num_arguments; ++i) {
    buffers[i] = tensors[i]->data == NULL ? NULL : (char *)tensors[i]->data + tensors[i]->byte_offset;
    if (!copies || buffers[i] == NULL || (uintptr_t)buffers[i] % TUNER_ALIGNMENT == 0) continue;
    copied[i] = tuner_workspace(bytes_of(tensors[i]));
    if (copied[i] == NULL) {
      status = TUNER_ERROR_MEMORY;
    } else if (!function->arguments[i].is_output) {
      memcpy(copied[i], buffers[i], bytes_of(tensors[i]));
    }
    buffers[i] = copied[i];
  }
  buffers[function->num_arguments] = (void *)(intptr_t)rows;
  if (status == TUNER_OK) status = tuner_call(function, buffers);
  for (int32_t i = 0; copies && i < function->num_arguments; ++i) {
    if (copied[i] == NULL) continue;
    if (status == TUNER_OK && function->arguments[i].is_output)
      memcpy((char *)tensors[i]->data + tensors[i]->byte_offset, copied[i], bytes_of(tensors[i]));
    tuner_workspace_free(copied[i]);
  }
  return status;
}
