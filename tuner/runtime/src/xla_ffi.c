/* Functions as XLA calls them. */
#include "xla_ffi.h"

#include "tensors.h"

enum { INVALID_ARGUMENT = 3, INTERNAL = 13, MAJOR = 0, MINOR = 1 };

/* DLPack's code and bits of XLA's dtypes; bits are 0 of those that no function takes. */
static const struct {
  uint8_t code, bits;
} dtypes[] = {
    [1] = {6, 8},  /* PRED */
    [2] = {0, 8},  [3] = {0, 16}, [4] = {0, 32}, [5] = {0, 64}, /* S8 to S64 */
    [6] = {1, 8},  [7] = {1, 16}, [8] = {1, 32}, [9] = {1, 64}, /* U8 to U64 */
    [10] = {2, 16}, [11] = {2, 32}, [12] = {2, 64},             /* F16 to F64 */
    [16] = {4, 16},                                             /* BF16 */
};

static void *refused(const struct tuner_xla_frame *frame, int status) {
  struct tuner_xla_error_create arguments = {sizeof arguments, NULL, tuner_last_error(),
                                             status == TUNER_ERROR_INTERNAL ? INTERNAL : INVALID_ARGUMENT};
  return frame->api->create_error(&arguments);
}

static int tensor_of(const struct tuner_function *function, const struct tuner_xla_values *values, int64_t place, int32_t argument,
                     TunerDLTensor *tensor) {
  const struct tuner_xla_buffer *buffer = values->values[place];
  if (values->types[place] != TUNER_XLA_BUFFER)
    return tuner_fail(TUNER_ERROR_DTYPE, "%s: %s is no buffer", function->symbol, function->arguments[argument].name);
  if (buffer->dtype < 0 || (size_t)buffer->dtype >= sizeof dtypes / sizeof dtypes[0] || dtypes[buffer->dtype].bits == 0)
    return tuner_fail(TUNER_ERROR_DTYPE, "%s: %s has XLA's dtype %d, expected another", function->symbol,
                      function->arguments[argument].name, buffer->dtype);
  *tensor = (TunerDLTensor){.data = buffer->data, .device_type = 1, .ndim = (int32_t)buffer->rank,
                            .dtype_code = dtypes[buffer->dtype].code, .dtype_bits = dtypes[buffer->dtype].bits, .dtype_lanes = 1,
                            .shape = buffer->dims};
  return TUNER_OK;
}

static int call(const struct tuner_function *function, const struct tuner_xla_frame *frame) {
  TunerDLTensor tensors[TUNER_MAX_ARGUMENTS];
  const TunerDLTensor *places[TUNER_MAX_ARGUMENTS];
  const int64_t inputs = frame->inputs.size, count = inputs + frame->outputs.size;
  if (count != function->num_arguments || function->arguments[inputs < count ? inputs : 0].is_output == 0)
    return tuner_fail(TUNER_ERROR_SHAPE, "%s takes %d inputs and outputs together, got %lld and %lld", function->symbol,
                      (int)function->num_arguments, (long long)inputs, (long long)frame->outputs.size);
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    const int status = i < inputs ? tensor_of(function, &frame->inputs, i, i, &tensors[i])
                                  : tensor_of(function, &frame->outputs, i - inputs, i, &tensors[i]);
    if (status != TUNER_OK) return status;
    places[i] = &tensors[i];
  }
  return tuner_call_tensors(function, places, 1);
}

void *tuner_call_xla(const struct tuner_function *function, struct tuner_xla_frame *frame) {
  for (struct tuner_xla_extension *extension = frame->extension; extension != NULL; extension = extension->next) {
    if (extension->type != TUNER_XLA_METADATA) continue; /* XLA asks what the handler is */
    struct tuner_xla_metadata *metadata = ((struct tuner_xla_metadata_extension *)extension)->metadata;
    metadata->version.major = MAJOR;
    metadata->version.minor = MINOR;
    metadata->traits = 0;
    return NULL;
  }
  if (frame->stage != TUNER_XLA_EXECUTE) return NULL;
  const int status = call(function, frame);
  return status == TUNER_OK ? NULL : refused(frame, status);
}
