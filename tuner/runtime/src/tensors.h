/* Calls of a function with tensors instead of pointers, for the interfaces of frameworks. */
#ifndef TUNER_TENSORS_H
#define TUNER_TENSORS_H

#include "error.h"
#include "function.h"
#include "tvm_abi.h"

enum { TUNER_ERROR_DTYPE = 10, TUNER_ERROR_SHAPE = 11, TUNER_ERROR_DEVICE = 12 };

/* Whether the first `count` tensors, one for each of the first arguments, have the device, dtype, shape and strides that the
 * function takes. Gives the extent of a portfolio, and the arguments with the shapes that go with it but for the first extents
 * of a range. */
TUNER_HIDDEN int tuner_check_tensors(const struct tuner_function *function, const TunerDLTensor *const *tensors, int32_t count,
                                     int64_t *rows, const struct tuner_argument **arguments);

/* Calls the function on one tensor for each argument, inputs then outputs, after it has checked their device, dtype, shape and
 * strides; a portfolio takes its extent from the shapes. Where `copies` is not 0, a tensor that begins at no multiple of 64 bytes
 * is passed through the workspace, else it is an error. Returns an enum tuner_status or one of the above. */
TUNER_HIDDEN int tuner_call_tensors(const struct tuner_function *function, const TunerDLTensor *const *tensors, int copies);

#endif
