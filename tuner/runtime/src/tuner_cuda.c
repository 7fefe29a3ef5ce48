/* The launcher of exported CUDA functions: checks its arguments, loads the right cubin once a context, launches on a stream. */
#define _GNU_SOURCE
#include "tuner_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tuner_cuda_driver.h"
#include "tuner_cuda_internal.h"

static _Thread_local char message[512];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tuner_cuda_driver driver;
static void *driver_library;
static int opened; /* 1: all of `driver` is there */

const char *tuner_cuda_last_error(void) { return message; }

void tuner_cuda_lock(void) { pthread_mutex_lock(&lock); }

void tuner_cuda_unlock(void) { pthread_mutex_unlock(&lock); }

int tuner_cuda_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

int tuner_cuda_driver_failed(const char *symbol, const char *what, int result) {
  const char *name = NULL, *text = NULL;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  int status = result == TUNER_CUDA_OUT_OF_MEMORY ? TUNER_CUDA_ERROR_MEMORY : TUNER_CUDA_ERROR_DRIVER;
  return tuner_cuda_fail(status, "%s: %s failed: %s (%s)", symbol, what, name ? name : "unknown error", text ? text : "no text");
}

/* With the lock held. */
static int open_driver(void) {
  if (opened) return TUNER_CUDA_OK;
  void *library = driver_library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return tuner_cuda_fail(TUNER_CUDA_ERROR_DRIVER, "NVIDIA's driver cannot be opened: %s", dlerror());
#define FIND(field, name)                                                                                   \
  *(void **)&driver.field = dlsym(library, name);                                                           \
  if (driver.field == NULL) return tuner_cuda_fail(TUNER_CUDA_ERROR_DRIVER, "NVIDIA's driver is too old: it has no " name);
  TUNER_CUDA_DRIVER(FIND)
#undef FIND
#define FIND(field, name) *(void **)&driver.field = dlsym(library, name);
  TUNER_CUDA_DRIVER_OPTIONAL(FIND)
#undef FIND
  int result = driver.cuInit(0);
  if (result != 0) return tuner_cuda_driver_failed("driver", "cuInit", result);
  opened = 1;
  return TUNER_CUDA_OK;
}

void *tuner_cuda_driver_function(const char *name) { return dlsym(driver_library, name); }

/* The context is the current one, else the first device's primary one, which then is made current. */
int tuner_cuda_context(const char *symbol, void **context) {
  int status = open_driver(), result;
  if (status != TUNER_CUDA_OK) return status;
  result = driver.cuCtxGetCurrent(context);
  if (result != 0) return tuner_cuda_driver_failed(symbol, "cuCtxGetCurrent", result);
  if (*context != NULL) return TUNER_CUDA_OK;
  int device = 0;
  if ((result = driver.cuDeviceGet(&device, 0)) != 0) return tuner_cuda_driver_failed(symbol, "cuDeviceGet", result);
  if ((result = driver.cuDevicePrimaryCtxRetain(context, device)) != 0) {
    return tuner_cuda_driver_failed(symbol, "cuDevicePrimaryCtxRetain", result);
  }
  if ((result = driver.cuCtxSetCurrent(*context)) != 0) return tuner_cuda_driver_failed(symbol, "cuCtxSetCurrent", result);
  return TUNER_CUDA_OK;
}

/* With the lock held: loads the best cubin for the current device into place `at`. */
static int load(struct tuner_cuda_function *function, void *context, int at) {
  int device = 0, major = 0, minor = 0, result;
  if ((result = driver.cuCtxGetDevice(&device)) != 0) return tuner_cuda_driver_failed(function->signature.symbol, "cuCtxGetDevice", result);
  result = driver.cuDeviceGetAttribute(&major, TUNER_CUDA_CAPABILITY_MAJOR, device);
  if (result == 0) result = driver.cuDeviceGetAttribute(&minor, TUNER_CUDA_CAPABILITY_MINOR, device);
  if (result != 0) return tuner_cuda_driver_failed(function->signature.symbol, "cuDeviceGetAttribute", result);
  const struct tuner_cuda_cubin *best = NULL;
  for (int i = 0; i < function->cubins; i++) {
    const struct tuner_cuda_cubin *one = &function->cubin[i];
    if (one->major == major && one->minor <= minor && (best == NULL || one->minor > best->minor)) best = one;
  }
  if (best == NULL) {
    return tuner_cuda_fail(TUNER_CUDA_ERROR_ARCHITECTURE, "%s: none of its %d cubins runs on a device of compute capability %d.%d",
                function->signature.symbol, function->cubins, major, minor);
  }
  void *module = NULL;
  if ((result = driver.cuModuleLoadData(&module, best->code)) != 0) {
    return tuner_cuda_driver_failed(function->signature.symbol, "cuModuleLoadData", result);
  }
  for (int i = 0; i < function->launches; i++) {
    const struct tuner_cuda_launch *launch = &function->launch[i];
    void **kernel = &function->loaded[at].kernel[i];
    result = driver.cuModuleGetFunction(kernel, module, launch->kernel);
    if (result == 0 && launch->shared_bytes > 0) {
      result = driver.cuFuncSetAttribute(*kernel, TUNER_CUDA_DYNAMIC_SHARED_BYTES, (int)launch->shared_bytes);
    }
    if (result != 0) return tuner_cuda_driver_failed(function->signature.symbol, launch->kernel, result);
  }
  function->loaded[at].module = module;
  function->loaded[at].context = context;
  return TUNER_CUDA_OK;
}

int tuner_cuda_find_loaded(struct tuner_cuda_function *function, void *context, int *at) {
  for (*at = 0; *at < TUNER_CUDA_CONTEXTS; ++*at) {
    if (function->loaded[*at].context == context) return TUNER_CUDA_OK;
    if (function->loaded[*at].context == NULL) return load(function, context, *at);
  }
  return tuner_cuda_fail(TUNER_CUDA_ERROR_INTERNAL, "%s: loaded in %d contexts already", function->signature.symbol, TUNER_CUDA_CONTEXTS);
}

int tuner_cuda_check(const struct tuner_cuda_signature *signature, const uint64_t *buffers) {
  int count = signature->inputs + signature->outputs;
  for (int i = 0; i < count; i++) {
    if (buffers[i] == 0) return tuner_cuda_fail(TUNER_CUDA_ERROR_NULL, "%s: argument %d is null", signature->symbol, i);
    if (buffers[i] % TUNER_CUDA_ALIGNMENT != 0) {
      return tuner_cuda_fail(TUNER_CUDA_ERROR_ALIGNMENT, "%s: argument %d is not aligned to %d bytes", signature->symbol, i,
                  TUNER_CUDA_ALIGNMENT);
    }
  }
  for (int i = signature->inputs; i < count; i++) {
    for (int j = 0; j < i; j++) {
      if (buffers[i] < buffers[j] + signature->bytes[j] && buffers[j] < buffers[i] + signature->bytes[i]) {
        return tuner_cuda_fail(TUNER_CUDA_ERROR_OVERLAP, "%s: arguments %d and %d overlap", signature->symbol, j, i);
      }
    }
  }
  return TUNER_CUDA_OK;
}

/* Tensor maps hold addresses, so each call makes its own. */
static int encode(const char *symbol, const struct tuner_cuda_map *one, const uint64_t *buffers, void *map) {
  if (driver.cuTensorMapEncodeTiled == NULL) {
    return tuner_cuda_fail(TUNER_CUDA_ERROR_DRIVER, "%s: NVIDIA's driver is too old: it has no cuTensorMapEncodeTiled", symbol);
  }
  int result = driver.cuTensorMapEncodeTiled(map, one->type, one->rank, (void *)(uintptr_t)buffers[one->buffer], one->extents,
                                             one->strides, one->box, one->steps, TUNER_CUDA_NOT_INTERLEAVED,
                                             TUNER_CUDA_SWIZZLE_128B, TUNER_CUDA_L2_PROMOTION, TUNER_CUDA_ZEROS_OUTSIDE);
  return result == 0 ? TUNER_CUDA_OK : tuner_cuda_driver_failed(symbol, "cuTensorMapEncodeTiled", result);
}

int tuner_cuda_parameters(const char *symbol, const struct tuner_cuda_launch *launch, uint64_t *buffers,
                          struct tuner_cuda_parameters *parameters) {
  int maps = launch->mapped;
  for (int i = 0; i < maps; i++) {
    int status = encode(symbol, &launch->map[i], buffers, parameters->maps[i]);
    if (status != TUNER_CUDA_OK) return status;
    parameters->pointers[i] = parameters->maps[i];
  }
  for (int i = 0; i < launch->count; i++) parameters->pointers[maps + i] = &buffers[launch->arguments[i]];
  return TUNER_CUDA_OK;
}

int tuner_cuda_launch_on(struct tuner_cuda_function *function, int at, int launch, uint64_t *buffers, void *stream) {
  const struct tuner_cuda_launch *one = &function->launch[launch];
  struct tuner_cuda_parameters parameters;
  int status = tuner_cuda_parameters(function->signature.symbol, one, buffers, &parameters);
  if (status != TUNER_CUDA_OK) return status;
  int result =
      driver.cuLaunchKernel(function->loaded[at].kernel[launch], one->grid[0], one->grid[1], one->grid[2], one->block[0],
                            one->block[1], one->block[2], one->shared_bytes, stream, parameters.pointers, NULL);
  return result == 0 ? TUNER_CUDA_OK : tuner_cuda_driver_failed(function->signature.symbol, one->kernel, result);
}

int tuner_cuda_call(struct tuner_cuda_function *function, const uint64_t *given, void *stream) {
  const struct tuner_cuda_signature *signature = &function->signature;
  uint64_t buffers[TUNER_CUDA_BUFFERS] = {0};
  int arguments = signature->inputs + signature->outputs, status = tuner_cuda_check(signature, given), at = 0, made = 0;
  void *context = NULL;
  if (status != TUNER_CUDA_OK) return status;
  tuner_cuda_lock();
  status = tuner_cuda_context(signature->symbol, &context);
  if (status == TUNER_CUDA_OK) status = tuner_cuda_find_loaded(function, context, &at);
  tuner_cuda_unlock();
  if (status != TUNER_CUDA_OK) return status;
  memcpy(buffers, given, (size_t)arguments * sizeof *given);
  /* Taken and given back in the stream's order: calls on several streams do not share it, and none of them waits. */
  for (; made < function->workspaces && status == TUNER_CUDA_OK; made++) {
    int result = driver.cuMemAllocAsync(&buffers[arguments + made], signature->bytes[arguments + made], stream);
    if (result != 0) {
      status = tuner_cuda_driver_failed(signature->symbol, "cuMemAllocAsync", result);
      break;
    }
  }
  for (int i = 0; i < function->launches && status == TUNER_CUDA_OK; i++) {
    status = tuner_cuda_launch_on(function, at, i, buffers, stream);
  }
  while (made-- > 0) {
    int result = driver.cuMemFreeAsync(buffers[arguments + made], stream);
    if (result != 0 && status == TUNER_CUDA_OK) {
      status = tuner_cuda_driver_failed(signature->symbol, "cuMemFreeAsync", result);
    }
  }
  return status;
}
