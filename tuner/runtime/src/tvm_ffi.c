/* Functions as tvm-ffi calls them. Its library is not linked: whoever calls has loaded it, and it is looked up when there is an
 * error to report. */
#define _GNU_SOURCE
#include "tvm_ffi.h"

#include <dlfcn.h>

#include "tensors.h"

enum {
  ANY_TENSOR = 70,    /* kTVMFFITensor: an object whose DLTensor follows its header */
  OBJECT_HEADER = 24, /* bytes, sizeof(TVMFFIObject) */
};

static const char *kind_of(int status) {
  switch (status) {
    case TUNER_ERROR_DTYPE:
      return "TypeError";
    case TUNER_ERROR_MEMORY:
      return "MemoryError";
    case TUNER_ERROR_ISA:
    case TUNER_ERROR_INTERNAL:
      return "RuntimeError";
    default:
      return "ValueError";
  }
}

static int raised(int status) {
  typedef void (*Raise)(const char *kind, const char *message);
  static const char name[] = "TVMFFIErrorSetRaisedFromCStr";
  Raise raise = (Raise)dlsym(RTLD_DEFAULT, name);
  if (raise == NULL) { /* loaded with RTLD_LOCAL */
    void *library = dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL) raise = (Raise)dlsym(library, name);
  }
  if (raise != NULL) raise(kind_of(status), tuner_last_error());
  return -1;
}

static const TunerDLTensor *tensor_in(const TunerAny *argument) {
  if (argument->value.v_ptr == NULL) return NULL;
  if (argument->type_index == TUNER_ANY_DLTENSOR) return argument->value.v_ptr;
  if (argument->type_index == ANY_TENSOR) return (const void *)((const char *)argument->value.v_ptr + OBJECT_HEADER);
  return NULL;
}

int tuner_call_tvm_ffi(const struct tuner_function *function, const TunerAny *arguments, int32_t count, TunerAny *result) {
  const TunerDLTensor *tensors[TUNER_MAX_ARGUMENTS];
  if (result != NULL) *result = (TunerAny){TUNER_ANY_NONE, 0, {0}};
  if (count != function->num_arguments || arguments == NULL)
    return raised(tuner_fail(TUNER_ERROR_DTYPE, "%s takes %d tensors, inputs then outputs, got %d arguments", function->symbol,
                             (int)function->num_arguments, (int)count));
  for (int32_t i = 0; i < count; ++i) {
    tensors[i] = tensor_in(&arguments[i]);
    if (tensors[i] == NULL)
      return raised(tuner_fail(TUNER_ERROR_DTYPE, "%s: argument %d (%s) is no tensor", function->symbol, (int)i,
                               function->arguments[i].name));
  }
  const int status = tuner_call_tensors(function, tensors, 0);
  return status == TUNER_OK ? 0 : raised(status);
}
