/* Models on a GPU. Everything is loaded once a context; a call launches one graph, whose branches are the steps that need not
 * wait for one another. Where the caller's addresses are others than the last call's, the steps on them are told. */
#define _GNU_SOURCE
#include "tuner_cuda_model.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tuner_cuda_graph_driver.h"
#include "tuner_cuda_internal.h"

enum { REPEATS = 8 }; /* launches of a step that is timed */

static struct tuner_cuda_graph_driver driver;
static int complete; /* 1: all of `driver` is there */
/* Held by calls on arrays of the host, which share a place on the device. */
static pthread_mutex_t staging = PTHREAD_MUTEX_INITIALIZER;

static int arguments_of(const struct tuner_cuda_model *model) { return model->signature.inputs + model->signature.outputs; }

static int failed(const struct tuner_cuda_model *model, const char *what, int result) {
  return tuner_cuda_driver_failed(model->signature.symbol, what, result);
}

/* With the lock held, after `tuner_cuda_context`. */
static int complete_driver(void) {
  if (complete) return TUNER_CUDA_OK;
#define FIND(field, name)                                                                                                \
  *(void **)&driver.field = tuner_cuda_driver_function(name);                                                            \
  if (driver.field == NULL) {                                                                                            \
    return tuner_cuda_fail(TUNER_CUDA_ERROR_DRIVER, "NVIDIA's driver is too old for models: it has no " name);           \
  }
  TUNER_CUDA_GRAPH_DRIVER(FIND)
#undef FIND
  complete = 1;
  return TUNER_CUDA_OK;
}

/* The addresses of a step's buffers. `arguments`: those of the model's inputs and outputs. */
static void resolve(const struct tuner_cuda_model *model, const struct tuner_cuda_loaded_model *loaded,
                    const struct tuner_cuda_step *step, const uint64_t *arguments, uint64_t *buffers) {
  const struct tuner_cuda_function *kernel = step->kernel;
  int count = kernel == NULL ? 2 : kernel->signature.inputs + kernel->signature.outputs + kernel->workspaces;
  for (int i = 0; i < count; i++) {
    const struct tuner_cuda_place *place = &step->places[i];
    buffers[i] = (place->buffer < arguments_of(model) ? arguments[place->buffer] : loaded->memory) + place->offset;
  }
}

static struct tuner_cuda_copy_node copied(const uint64_t *buffers, size_t bytes) {
  struct tuner_cuda_copy_node node = {.width_bytes = bytes, .height = 1, .depth = 1};
  node.source.kind = node.destination.kind = TUNER_CUDA_ON_DEVICE;
  node.source.device = buffers[0];
  node.destination.device = buffers[1];
  node.source.pitch = node.destination.pitch = bytes;
  return node;
}

static struct tuner_cuda_kernel_node launched(const struct tuner_cuda_step *step, int at, void **parameters) {
  const struct tuner_cuda_launch *launch = &step->kernel->launch[step->launch];
  struct tuner_cuda_kernel_node node = {.function = step->kernel->loaded[at].kernel[step->launch],
                                        .shared_bytes = launch->shared_bytes,
                                        .parameters = parameters};
  memcpy(node.grid, launch->grid, sizeof node.grid);
  memcpy(node.block, launch->block, sizeof node.block);
  return node;
}

/* Adds a step to the graph, behind those that it waits for. */
static int add(struct tuner_cuda_model *model, struct tuner_cuda_loaded_model *loaded, int number, void **after) {
  const struct tuner_cuda_step *step = &model->step[number];
  uint64_t buffers[TUNER_CUDA_BUFFERS];
  struct tuner_cuda_parameters parameters;
  void **node = &loaded->nodes[number];
  int result;
  for (int i = 0; i < step->count; i++) after[i] = loaded->nodes[step->after[i]];
  resolve(model, loaded, step, loaded->addresses, buffers);
  if (step->kernel == NULL) {
    struct tuner_cuda_copy_node copy = copied(buffers, step->bytes);
    result = driver.cuGraphAddMemcpyNode(node, loaded->graph, after, (size_t)step->count, &copy, loaded->context);
  } else {
    const struct tuner_cuda_launch *launch = &step->kernel->launch[step->launch];
    int status = tuner_cuda_parameters(model->signature.symbol, launch, buffers, &parameters);
    if (status != TUNER_CUDA_OK) return status;
    struct tuner_cuda_kernel_node kernel = launched(step, loaded->kernels[number], parameters.pointers);
    result = driver.cuGraphAddKernelNode(node, loaded->graph, after, (size_t)step->count, &kernel);
  }
  return result == 0 ? TUNER_CUDA_OK : failed(model, "adding to a graph", result);
}

/* Tells a step of the graph that its addresses are others. */
static int tell(struct tuner_cuda_model *model, struct tuner_cuda_loaded_model *loaded, int number) {
  const struct tuner_cuda_step *step = &model->step[number];
  uint64_t buffers[TUNER_CUDA_BUFFERS];
  struct tuner_cuda_parameters parameters;
  int result;
  resolve(model, loaded, step, loaded->addresses, buffers);
  if (step->kernel == NULL) {
    struct tuner_cuda_copy_node copy = copied(buffers, step->bytes);
    result = driver.cuGraphExecMemcpyNodeSetParams(loaded->executable, loaded->nodes[number], &copy, loaded->context);
  } else {
    const struct tuner_cuda_launch *launch = &step->kernel->launch[step->launch];
    int status = tuner_cuda_parameters(model->signature.symbol, launch, buffers, &parameters);
    if (status != TUNER_CUDA_OK) return status;
    struct tuner_cuda_kernel_node kernel = launched(step, loaded->kernels[number], parameters.pointers);
    result = driver.cuGraphExecKernelNodeSetParams(loaded->executable, loaded->nodes[number], &kernel);
  }
  return result == 0 ? TUNER_CUDA_OK : failed(model, "changing a graph", result);
}

/* Makes the graph for the addresses in `loaded`. */
static int record(struct tuner_cuda_model *model, struct tuner_cuda_loaded_model *loaded) {
  void **after = calloc((size_t)model->steps, sizeof *after);
  if (after == NULL) return tuner_cuda_fail(TUNER_CUDA_ERROR_MEMORY, "%s: no memory", model->signature.symbol);
  int result = driver.cuGraphCreate(&loaded->graph, 0);
  int status = result == 0 ? TUNER_CUDA_OK : failed(model, "cuGraphCreate", result);
  for (int i = 0; i < model->steps && status == TUNER_CUDA_OK; i++) status = add(model, loaded, i, after);
  free(after);
  if (status == TUNER_CUDA_OK && (result = driver.cuGraphInstantiate(&loaded->executable, loaded->graph, 0)) != 0) {
    status = failed(model, "cuGraphInstantiate", result);
  }
  if (status != TUNER_CUDA_OK && loaded->graph != NULL) {
    driver.cuGraphDestroy(loaded->graph);
    loaded->graph = loaded->executable = NULL;
  }
  return status;
}

static void release(struct tuner_cuda_loaded_model *loaded) {
  if (loaded->memory != 0) driver.cuMemFree(loaded->memory);
  free(loaded->nodes);
  free(loaded->kernels);
  free(loaded->addresses);
  memset(loaded, 0, sizeof *loaded);
}

/* With the lock held: the kernels, the memory and its constants. */
static int load(struct tuner_cuda_model *model, struct tuner_cuda_loaded_model *loaded, void *context, void *stream) {
  int status = TUNER_CUDA_OK, result;
  loaded->nodes = calloc((size_t)model->steps + 1, sizeof *loaded->nodes);
  loaded->kernels = calloc((size_t)model->steps + 1, sizeof *loaded->kernels);
  loaded->addresses = calloc((size_t)arguments_of(model) + 1, sizeof *loaded->addresses);
  if (loaded->nodes == NULL || loaded->kernels == NULL || loaded->addresses == NULL) {
    status = tuner_cuda_fail(TUNER_CUDA_ERROR_MEMORY, "%s: no memory", model->signature.symbol);
  }
  for (int i = 0; i < model->steps && status == TUNER_CUDA_OK; i++) {
    struct tuner_cuda_function *kernel = model->step[i].kernel;
    if (kernel != NULL) status = tuner_cuda_find_loaded(kernel, context, &loaded->kernels[i]);
  }
  if (status == TUNER_CUDA_OK && (result = driver.cuMemAlloc(&loaded->memory, model->memory_bytes)) != 0) {
    loaded->memory = 0;
    status = failed(model, "cuMemAlloc", result);
  }
  if (status == TUNER_CUDA_OK && model->constant_bytes > 0) {
    result = driver.cuMemcpyHtoDAsync(loaded->memory, model->constants, model->constant_bytes, stream);
    if (result != 0) status = failed(model, "cuMemcpyHtoDAsync", result);
  }
  /* Later calls may come on other streams. */
  if (status == TUNER_CUDA_OK && (result = driver.cuStreamSynchronize(stream)) != 0) {
    status = failed(model, "cuStreamSynchronize", result);
  }
  if (status != TUNER_CUDA_OK) release(loaded);
  else loaded->context = context;
  return status;
}

/* With the lock held: the model as it is loaded in the context of the call. */
static int find(struct tuner_cuda_model *model, void *stream, struct tuner_cuda_loaded_model **loaded) {
  void *context = NULL;
  int status = tuner_cuda_context(model->signature.symbol, &context);
  if (status == TUNER_CUDA_OK) status = complete_driver();
  if (status != TUNER_CUDA_OK) return status;
  for (int i = 0; i < TUNER_CUDA_CONTEXTS; i++) {
    *loaded = &model->loaded[i];
    if ((*loaded)->context == context) return TUNER_CUDA_OK;
    if ((*loaded)->context == NULL) return load(model, *loaded, context, stream);
  }
  return tuner_cuda_fail(TUNER_CUDA_ERROR_INTERNAL, "%s: loaded in %d contexts already", model->signature.symbol,
                         TUNER_CUDA_CONTEXTS);
}

/* Puts one step on a stream by itself. */
static int put(struct tuner_cuda_model *model, struct tuner_cuda_loaded_model *loaded, int number, const uint64_t *given,
               void *stream) {
  const struct tuner_cuda_step *step = &model->step[number];
  uint64_t buffers[TUNER_CUDA_BUFFERS];
  resolve(model, loaded, step, given, buffers);
  if (step->kernel != NULL) return tuner_cuda_launch_on(step->kernel, loaded->kernels[number], step->launch, buffers, stream);
  int result = driver.cuMemcpyDtoDAsync(buffers[1], buffers[0], step->bytes, stream);
  return result == 0 ? TUNER_CUDA_OK : failed(model, "cuMemcpyDtoDAsync", result);
}

/* The graph with these addresses. */
static int direct(struct tuner_cuda_model *model, struct tuner_cuda_loaded_model *loaded, const uint64_t *given) {
  size_t bytes = (size_t)arguments_of(model) * sizeof *given;
  int status = TUNER_CUDA_OK;
  if (loaded->executable != NULL && memcmp(loaded->addresses, given, bytes) == 0) return TUNER_CUDA_OK;
  char *changed = calloc((size_t)arguments_of(model) + 1, 1);
  if (changed == NULL) return tuner_cuda_fail(TUNER_CUDA_ERROR_MEMORY, "%s: no memory", model->signature.symbol);
  for (int i = 0; i < arguments_of(model); i++) changed[i] = loaded->addresses[i] != given[i];
  memcpy(loaded->addresses, given, bytes);
  if (loaded->executable == NULL) {
    status = record(model, loaded);
  } else {
    for (int i = 0; i < model->steps && status == TUNER_CUDA_OK; i++) {
      const struct tuner_cuda_step *step = &model->step[i];
      const struct tuner_cuda_function *kernel = step->kernel;
      int count = kernel == NULL ? 2 : kernel->signature.inputs + kernel->signature.outputs, touched = 0;
      for (int j = 0; j < count; j++) {
        touched |= step->places[j].buffer < arguments_of(model) && changed[step->places[j].buffer];
      }
      if (touched) status = tell(model, loaded, i);
    }
    /* Some steps may know and others not: the next call is to tell all of them. */
    if (status != TUNER_CUDA_OK) memset(loaded->addresses, 0, bytes);
  }
  free(changed);
  return status;
}

int tuner_cuda_model_call(struct tuner_cuda_model *model, const uint64_t *given, void *stream) {
  struct tuner_cuda_loaded_model *loaded = NULL;
  int status = tuner_cuda_check(&model->signature, given), capture = TUNER_CUDA_NOT_CAPTURED, result;
  if (status != TUNER_CUDA_OK) return status;
  tuner_cuda_lock();
  status = find(model, stream, &loaded);
  if (status == TUNER_CUDA_OK && stream != NULL && (result = driver.cuStreamIsCapturing(stream, &capture)) != 0) {
    status = failed(model, "cuStreamIsCapturing", result);
  }
  if (status == TUNER_CUDA_OK && capture != TUNER_CUDA_NOT_CAPTURED) {
    /* No graph can be captured into another one; its steps can. */
    for (int i = 0; i < model->steps && status == TUNER_CUDA_OK; i++) status = put(model, loaded, i, given, stream);
  } else if (status == TUNER_CUDA_OK) {
    status = direct(model, loaded, given);
    if (status == TUNER_CUDA_OK && (result = driver.cuGraphLaunch(loaded->executable, stream)) != 0) {
      status = failed(model, "cuGraphLaunch", result);
    }
  }
  tuner_cuda_unlock();
  return status;
}

static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* The addresses of the arguments in the place of the host's arrays, which is made at the first call. */
static int stage(struct tuner_cuda_model *model, uint64_t *given) {
  struct tuner_cuda_loaded_model *loaded = NULL;
  size_t bytes = 256;
  tuner_cuda_lock();
  int status = find(model, NULL, &loaded), result;
  for (int i = 0; i < arguments_of(model); i++) bytes += aligned(model->signature.bytes[i]);
  if (status == TUNER_CUDA_OK && loaded->staging == 0 && (result = driver.cuMemAlloc(&loaded->staging, bytes)) != 0) {
    loaded->staging = 0;
    status = failed(model, "cuMemAlloc", result);
  }
  if (status == TUNER_CUDA_OK) {
    given[0] = loaded->staging;
    for (int i = 1; i < arguments_of(model); i++) given[i] = given[i - 1] + aligned(model->signature.bytes[i - 1]);
  }
  tuner_cuda_unlock();
  return status;
}

int tuner_cuda_model_call_host(struct tuner_cuda_model *model, void *const *arrays) {
  const struct tuner_cuda_signature *signature = &model->signature;
  uint64_t given[TUNER_CUDA_BUFFERS] = {0};
  int status = TUNER_CUDA_OK, result;
  for (int i = 0; i < arguments_of(model); i++) {
    if (arrays[i] == NULL) return tuner_cuda_fail(TUNER_CUDA_ERROR_NULL, "%s: argument %d is null", signature->symbol, i);
  }
  pthread_mutex_lock(&staging);
  status = stage(model, given);
  for (int i = 0; i < signature->inputs && status == TUNER_CUDA_OK; i++) {
    result = driver.cuMemcpyHtoDAsync(given[i], arrays[i], signature->bytes[i], NULL);
    if (result != 0) status = failed(model, "cuMemcpyHtoDAsync", result);
  }
  if (status == TUNER_CUDA_OK) status = tuner_cuda_model_call(model, given, NULL);
  for (int i = signature->inputs; i < arguments_of(model) && status == TUNER_CUDA_OK; i++) {
    result = driver.cuMemcpyDtoHAsync(arrays[i], given[i], signature->bytes[i], NULL);
    if (result != 0) status = failed(model, "cuMemcpyDtoHAsync", result);
  }
  if (status == TUNER_CUDA_OK && (result = driver.cuStreamSynchronize(NULL)) != 0) {
    status = failed(model, "cuStreamSynchronize", result);
  }
  pthread_mutex_unlock(&staging);
  return status;
}

/* The seconds of each step, from events around some launches of it in a row. */
static int timed(struct tuner_cuda_model *model, struct tuner_cuda_loaded_model *loaded, const uint64_t *given, void *stream,
                 void **events, double *seconds) {
  int status = TUNER_CUDA_OK, result;
  for (int i = 0; i < 2; i++) {
    if ((result = driver.cuEventCreate(&events[i], 0)) != 0) return failed(model, "cuEventCreate", result);
  }
  for (int i = 0; i < model->steps && status == TUNER_CUDA_OK; i++) {
    float milliseconds = 0;
    status = put(model, loaded, i, given, stream);
    result = driver.cuEventRecord(events[0], stream);
    for (int j = 0; j < REPEATS && status == TUNER_CUDA_OK; j++) status = put(model, loaded, i, given, stream);
    if (status != TUNER_CUDA_OK) break;
    if (result == 0) result = driver.cuEventRecord(events[1], stream);
    if (result == 0) result = driver.cuStreamSynchronize(stream);
    if (result == 0) result = driver.cuEventElapsedTime(&milliseconds, events[0], events[1]);
    if (result != 0) status = failed(model, "timing a step", result);
    seconds[i] = milliseconds / 1e3 / REPEATS;
  }
  return status;
}

int tuner_cuda_model_times(struct tuner_cuda_model *model, const uint64_t *given, void *stream, double *seconds) {
  struct tuner_cuda_loaded_model *loaded = NULL;
  void *events[2] = {NULL, NULL};
  int status = tuner_cuda_check(&model->signature, given);
  if (status != TUNER_CUDA_OK) return status;
  tuner_cuda_lock();
  status = find(model, stream, &loaded);
  if (status == TUNER_CUDA_OK) status = timed(model, loaded, given, stream, events, seconds);
  for (int i = 0; i < 2; i++) {
    if (events[i] != NULL) driver.cuEventDestroy(events[i]);
  }
  tuner_cuda_unlock();
  return status;
}
