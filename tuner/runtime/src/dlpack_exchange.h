/* Functions as Python calls them with the tensors of a framework that has DLPack's exchange API, PyTorch's for one. */
#ifndef TUNER_DLPACK_EXCHANGE_H
#define TUNER_DLPACK_EXCHANGE_H

#include "error.h"
#include "function.h"
#include "tvm_abi.h"

/* The start of DLPackExchangeAPI, DLPack 1.2 and later 1.x. */
struct tuner_exchange_api {
  uint32_t major, minor;
  const void *previous;
  const void *unused[3]; /* what makes tensors, and takes and gives owned ones */
  int (*view)(void *object, TunerDLTensor *tensor); /* dltensor_from_py_object_no_sync, may be null */
};

/* What a function is bound to. `strides` has for each input its number of dimensions, then the strides in elements that it must
 * have, which where the extent is 1 may be any. Outputs are taken as they are. */
struct tuner_binding {
  const struct tuner_exchange_api *api;
  const int64_t *strides;
};

/* Calls the function on tensors, inputs then outputs, as a method of Python's (METH_FASTCALL) whose `self` is an integer, the
 * address of a tuner_binding. The interpreter's lock is free while the kernel runs. Returns an integer of Python's, an enum
 * tuner_status: TUNER_ERROR_SHAPE where an input has other strides, TUNER_ERROR_DTYPE where an argument is no tensor of the
 * framework or one is missing. */
TUNER_HIDDEN void *tuner_call_exchange(const struct tuner_function *function, void *self, void *const *tensors, intptr_t count);

#endif
