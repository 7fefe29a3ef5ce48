/* What the launchers of kernels and of models share. */
#ifndef TUNER_CUDA_INTERNAL_H
#define TUNER_CUDA_INTERNAL_H

#include "tuner_cuda.h"
#include "tuner_cuda_driver.h"

/* The parameters of one launch, for as long as the driver reads them. */
struct tuner_cuda_parameters {
  _Alignas(TUNER_CUDA_TENSOR_MAP_ALIGNMENT) unsigned char maps[TUNER_CUDA_MAPS][TUNER_CUDA_TENSOR_MAP_BYTES];
  void *pointers[TUNER_CUDA_MAPS + TUNER_CUDA_BUFFERS];
};

/* Held while anything is loaded. */
TUNER_CUDA_HIDDEN void tuner_cuda_lock(void);
TUNER_CUDA_HIDDEN void tuner_cuda_unlock(void);

/* Words for this thread's last error; returns `status`. */
TUNER_CUDA_HIDDEN int tuner_cuda_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a result of the driver's that is not 0. */
TUNER_CUDA_HIDDEN int tuner_cuda_driver_failed(const char *symbol, const char *what, int result);

/* A function of the driver, which is open; NULL where it has none of the name. */
TUNER_CUDA_HIDDEN void *tuner_cuda_driver_function(const char *name);

/* With the lock held: opens the driver, and gives the context that a call works in. */
TUNER_CUDA_HIDDEN int tuner_cuda_context(const char *symbol, void **context);

/* With the lock held: the place in `loaded` of a context, loaded there. */
TUNER_CUDA_HIDDEN int tuner_cuda_find_loaded(struct tuner_cuda_function *function, void *context, int *at);

/* Whether a call can take these device addresses. */
TUNER_CUDA_HIDDEN int tuner_cuda_check(const struct tuner_cuda_signature *signature, const uint64_t *buffers);

/* The parameters of a launch, for addresses of all the function's buffers. */
TUNER_CUDA_HIDDEN int tuner_cuda_parameters(const char *symbol, const struct tuner_cuda_launch *launch, uint64_t *buffers,
                                            struct tuner_cuda_parameters *parameters);

/* Puts a launch on a stream. */
TUNER_CUDA_HIDDEN int tuner_cuda_launch_on(struct tuner_cuda_function *function, int at, int launch, uint64_t *buffers,
                                           void *stream);

#endif
