/* Functions as custom operators of ONNX Runtime, of the domain that has the library's name.
 *
 * Of its C interface only the functions of version 1 are called, whose places it holds fixed for all later ones, and a structure
 * of version 16 (ONNX Runtime 1.16) is filled, the first whose operators can fail with a text. Both are declared here, so that
 * nothing of ONNX Runtime is needed to compile. */
#ifndef TUNER_ONNXRUNTIME_H
#define TUNER_ONNXRUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "function.h"

enum { TUNER_ORT_VERSION = 16 };

/* OrtApi up to the last function of version 1, by place. */
typedef void (*TunerOrtFunction)(void);
struct tuner_ort_api {
  TunerOrtFunction functions[102];
};

struct tuner_ort_base {
  const struct tuner_ort_api *(*get_api)(uint32_t version);
  const char *(*get_version)(void);
};

/* OrtCustomOp up to the last field of version 16. */
struct tuner_ort_operator {
  uint32_t version;
  void *(*create_kernel)(const struct tuner_ort_operator *, const struct tuner_ort_api *, const void *information);
  const char *(*get_name)(const struct tuner_ort_operator *);
  const char *(*get_execution_provider)(const struct tuner_ort_operator *);
  int (*get_input_type)(const struct tuner_ort_operator *, size_t place);
  size_t (*get_input_count)(const struct tuner_ort_operator *);
  int (*get_output_type)(const struct tuner_ort_operator *, size_t place);
  size_t (*get_output_count)(const struct tuner_ort_operator *);
  void (*compute_v1)(void *kernel, void *context);
  void (*destroy_kernel)(void *kernel);
  int (*get_input_characteristic)(const struct tuner_ort_operator *, size_t place);
  int (*get_output_characteristic)(const struct tuner_ort_operator *, size_t place);
  int (*get_input_memory_type)(const struct tuner_ort_operator *, size_t place);
  int (*get_variadic_input_min_arity)(const struct tuner_ort_operator *);
  int (*get_variadic_input_homogeneity)(const struct tuner_ort_operator *);
  int (*get_variadic_output_min_arity)(const struct tuner_ort_operator *);
  int (*get_variadic_output_homogeneity)(const struct tuner_ort_operator *);
  void *(*create_kernel_v2)(const struct tuner_ort_operator *, const struct tuner_ort_api *, const void *information,
                            void **kernel);
  void *(*compute)(void *kernel, void *context);
  void *later[8]; /* null: fields of later versions, which are not read of this one */
};

/* An operator, and what it calls. ONNX Runtime holds on to it as long as the process lives. */
struct tuner_ort_function {
  struct tuner_ort_operator base;
  const struct tuner_function *function;
  const struct tuner_ort_api *api;
};

/* Registers an operator for each function with the options of a session. Returns null, or a status of ONNX Runtime's. */
TUNER_HIDDEN void *tuner_register_ort(void *options, const struct tuner_ort_base *base, const char *domain,
                                      const struct tuner_function *const *functions, struct tuner_ort_function *operators,
                                      size_t count);

#endif
