/* Functions as tvm-ffi calls them: `__tvm_ffi_NAME` takes one tensor for each argument, inputs then outputs. */
#ifndef TUNER_TVM_FFI_H
#define TUNER_TVM_FFI_H

#include "error.h"
#include "function.h"
#include "tvm_abi.h"

/* Returns 0, or -1 with the error in tvm-ffi's own place for it, where that library is loaded, and in this one's. */
TUNER_HIDDEN int tuner_call_tvm_ffi(const struct tuner_function *function, const TunerAny *arguments, int32_t count,
                                    TunerAny *result);

#endif
