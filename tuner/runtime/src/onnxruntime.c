/* Functions as custom operators of ONNX Runtime. */
#include "onnxruntime.h"

#include "tensors.h"

/* Places of functions in OrtApi, with their types. A null status is success. */
#define CREATE_STATUS(api) ((void *(*)(int, const char *))(api)->functions[0])
#define CREATE_DOMAIN(api) ((void *(*)(const char *, void **))(api)->functions[26])
#define ADD_OPERATOR(api) ((void *(*)(void *, const struct tuner_ort_operator *))(api)->functions[27])
#define ADD_DOMAIN(api) ((void *(*)(void *, void *))(api)->functions[28])
#define GET_DATA(api) ((void *(*)(void *, void **))(api)->functions[51])
#define GET_TYPE(api) ((void *(*)(const void *, int *))(api)->functions[60])
#define GET_RANK(api) ((void *(*)(const void *, size_t *))(api)->functions[61])
#define GET_SHAPE(api) ((void *(*)(const void *, int64_t *, size_t))(api)->functions[62])
#define GET_TYPE_AND_SHAPE(api) ((void *(*)(const void *, void **))(api)->functions[65])
#define GET_INPUT(api) ((void *(*)(const void *, size_t, const void **))(api)->functions[90])
#define GET_OUTPUT(api) ((void *(*)(void *, size_t, const int64_t *, size_t, void **))(api)->functions[91])
#define RELEASE_TYPE_AND_SHAPE(api) ((void (*)(void *))(api)->functions[99])

enum { FAIL = 1, INVALID_ARGUMENT = 2, UNKNOWN = 0, TUNER_ORT_DIMENSIONS = 16 };

/* DLPack's code and bits of ONNX's element types, by number. */
static const struct {
  uint8_t code, bits;
} dtypes[] = {
    [1] = {2, 32}, [2] = {1, 8},   [3] = {0, 8},   [4] = {1, 16},  [5] = {0, 16},  [6] = {0, 32},  [7] = {0, 64},
    [9] = {6, 8},  [10] = {2, 16}, [11] = {2, 64}, [12] = {1, 32}, [13] = {1, 64}, [16] = {4, 16},
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static int type_of(const struct tuner_argument *argument) {
  for (int type = 0; type < (int)DTYPES; ++type) {
    if (dtypes[type].bits == argument->dtype_bits && dtypes[type].code == argument->dtype_code) return type;
  }
  return UNKNOWN;
}

static const struct tuner_function *function_of(const struct tuner_ort_operator *operator) {
  return ((const struct tuner_ort_function *)operator)->function;
}

static const char *get_name(const struct tuner_ort_operator *operator) { return function_of(operator)->symbol; }

static const char *get_execution_provider(const struct tuner_ort_operator *operator) {
  (void)operator;
  return NULL; /* that of CPUs */
}

static size_t get_input_count(const struct tuner_ort_operator *operator) {
  const struct tuner_function *function = function_of(operator);
  size_t count = 0;
  while (count < (size_t)function->num_arguments && !function->arguments[count].is_output) ++count;
  return count;
}

static size_t get_output_count(const struct tuner_ort_operator *operator) {
  return (size_t)function_of(operator)->num_arguments - get_input_count(operator);
}

static int get_input_type(const struct tuner_ort_operator *operator, size_t place) {
  return type_of(&function_of(operator)->arguments[place]);
}

static int get_output_type(const struct tuner_ort_operator *operator, size_t place) {
  return type_of(&function_of(operator)->arguments[get_input_count(operator) + place]);
}

/* Required, default memory, and no variadic ones. */
static int zero_of(const struct tuner_ort_operator *operator, size_t place) { return (void)operator, (void)place, 0; }

static int one_of(const struct tuner_ort_operator *operator) { return (void)operator, 1; }

static void *create_kernel(const struct tuner_ort_operator *operator, const struct tuner_ort_api *api, const void *information,
                           void **kernel) {
  (void)api, (void)information;
  *kernel = (void *)operator;
  return NULL;
}

static void destroy_kernel(void *kernel) { (void)kernel; }

static void *refused(const struct tuner_ort_api *api, int status) {
  return CREATE_STATUS(api)(status == TUNER_ERROR_INTERNAL ? FAIL : INVALID_ARGUMENT, tuner_last_error());
}

/* What a call has of its tensors. */
struct call {
  TunerDLTensor tensors[TUNER_MAX_ARGUMENTS];
  const TunerDLTensor *places[TUNER_MAX_ARGUMENTS];
  int64_t shapes[TUNER_MAX_ARGUMENTS][TUNER_ORT_DIMENSIONS];
};

/* Describes a value. Returns null, or a status. */
static void *describe(const struct tuner_ort_api *api, const struct tuner_function *function, const void *value, int32_t place,
                      struct call *call) {
  void *information = NULL, *data = NULL;
  int type = UNKNOWN;
  size_t rank = 0;
  void *status = GET_TYPE_AND_SHAPE(api)(value, &information);
  if (status != NULL) return status;
  status = GET_TYPE(api)(information, &type);
  if (status == NULL) status = GET_RANK(api)(information, &rank);
  if (status == NULL && rank <= TUNER_ORT_DIMENSIONS) status = GET_SHAPE(api)(information, call->shapes[place], rank);
  RELEASE_TYPE_AND_SHAPE(api)(information);
  if (status == NULL) status = GET_DATA(api)((void *)value, &data);
  if (status != NULL) return status;
  if (rank > TUNER_ORT_DIMENSIONS || type < 0 || type >= DTYPES || dtypes[type].bits == 0)
    return refused(api, tuner_fail(TUNER_ERROR_SHAPE, "%s: %s has %zu dimensions of ONNX's type %d, expected others",
                                   function->symbol, function->arguments[place].name, rank, type));
  call->tensors[place] = (TunerDLTensor){.data = data, .device_type = 1, .ndim = (int32_t)rank, .dtype_code = dtypes[type].code,
                                         .dtype_bits = dtypes[type].bits, .dtype_lanes = 1, .shape = call->shapes[place]};
  call->places[place] = &call->tensors[place];
  return NULL;
}

static void *compute(void *kernel, void *context) {
  const struct tuner_ort_function *operator = kernel;
  const struct tuner_ort_api *api = operator->api;
  const struct tuner_function *function = operator->function;
  const int32_t inputs = (int32_t)get_input_count(&operator->base);
  const struct tuner_argument *arguments = function->arguments;
  struct call call;
  int64_t rows = 0;
  void *status = NULL;
  for (int32_t i = 0; status == NULL && i < inputs; ++i) {
    const void *value = NULL;
    status = GET_INPUT(api)(context, (size_t)i, &value);
    if (status == NULL) status = describe(api, function, value, i, &call);
  }
  if (status != NULL) return status;
  const int checked = tuner_check_tensors(function, call.places, inputs, &rows, &arguments);
  if (checked != TUNER_OK) return refused(api, checked);
  for (int32_t i = inputs; status == NULL && i < function->num_arguments; ++i) {
    void *value = NULL;
    for (int32_t k = 0; k < arguments[i].ndim && k < TUNER_ORT_DIMENSIONS; ++k)
      call.shapes[i][k] = k == 0 && function->arguments[i].row_bytes != 0 ? rows : arguments[i].shape[k];
    status = GET_OUTPUT(api)(context, (size_t)(i - inputs), call.shapes[i], (size_t)arguments[i].ndim, &value);
    if (status == NULL) status = describe(api, function, value, i, &call);
  }
  if (status != NULL) return status;
  const int called = tuner_call_tensors(function, call.places, 1);
  return called == TUNER_OK ? NULL : refused(api, called);
}

void *tuner_register_ort(void *options, const struct tuner_ort_base *base, const char *domain,
                         const struct tuner_function *const *functions, struct tuner_ort_function *operators, size_t count) {
  static const struct tuner_ort_operator base_operator = {
      .version = TUNER_ORT_VERSION,
      .get_name = get_name,
      .get_execution_provider = get_execution_provider,
      .get_input_type = get_input_type,
      .get_input_count = get_input_count,
      .get_output_type = get_output_type,
      .get_output_count = get_output_count,
      .destroy_kernel = destroy_kernel,
      .get_input_characteristic = zero_of,
      .get_output_characteristic = zero_of,
      .get_input_memory_type = zero_of,
      .get_variadic_input_min_arity = one_of,
      .get_variadic_input_homogeneity = one_of,
      .get_variadic_output_min_arity = one_of,
      .get_variadic_output_homogeneity = one_of,
      .create_kernel_v2 = create_kernel,
      .compute = compute,
  };
  const struct tuner_ort_api *api = base->get_api(TUNER_ORT_VERSION);
  if (api == NULL) { /* an older ONNX Runtime; version 1 is enough to say so */
    api = base->get_api(1);
    return api == NULL ? NULL : CREATE_STATUS(api)(FAIL, "the library needs ONNX Runtime 1.16 or newer");
  }
  void *made = NULL;
  void *status = CREATE_DOMAIN(api)(domain, &made);
  for (size_t i = 0; status == NULL && i < count; ++i) {
    operators[i] = (struct tuner_ort_function){.base = base_operator, .function = functions[i], .api = api};
    status = ADD_OPERATOR(api)(made, &operators[i].base);
  }
  return status != NULL ? status : ADD_DOMAIN(api)(options, made);
}
