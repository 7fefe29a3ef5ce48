/* Functions as XLA calls them: `__xla_ffi_NAME`, a handler with a buffer for each input and for each output.
 *
 * The layouts are those of XLA's C interface 0.1, which later versions extend at the ends of its structures, each of which
 * begins with its size. Declared here so that nothing of XLA is needed to compile. */
#ifndef TUNER_XLA_FFI_H
#define TUNER_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "function.h"

enum { TUNER_XLA_METADATA = 1, TUNER_XLA_EXECUTE = 3, TUNER_XLA_BUFFER = 1 };

struct tuner_xla_extension {
  size_t struct_size;
  int type;
  struct tuner_xla_extension *next;
};

struct tuner_xla_version {
  size_t struct_size;
  struct tuner_xla_extension *extension;
  int major, minor;
};

struct tuner_xla_metadata {
  size_t struct_size;
  struct tuner_xla_version version;
  uint32_t traits;
};

struct tuner_xla_metadata_extension {
  struct tuner_xla_extension base;
  struct tuner_xla_metadata *metadata;
};

struct tuner_xla_error_create {
  size_t struct_size;
  struct tuner_xla_extension *extension;
  const char *message;
  int code;
};

struct tuner_xla_api {
  size_t struct_size;
  struct tuner_xla_extension *extension;
  struct tuner_xla_version version;
  const void *internal;
  void *(*create_error)(struct tuner_xla_error_create *arguments);
};

struct tuner_xla_buffer {
  size_t struct_size;
  struct tuner_xla_extension *extension;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
};

struct tuner_xla_values {
  size_t struct_size;
  struct tuner_xla_extension *extension;
  int64_t size;
  int *types;
  void **values; /* of `struct tuner_xla_buffer` where the type is TUNER_XLA_BUFFER */
};

struct tuner_xla_frame {
  size_t struct_size;
  struct tuner_xla_extension *extension;
  const struct tuner_xla_api *api;
  void *context;
  int stage;
  struct tuner_xla_values inputs, outputs;
};

/* Calls the function. Returns null, or an error of XLA's. Buffers that XLA did not align are copied. */
TUNER_HIDDEN void *tuner_call_xla(const struct tuner_function *function, struct tuner_xla_frame *frame);

#endif
