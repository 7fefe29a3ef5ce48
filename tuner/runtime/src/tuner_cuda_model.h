/* A model's kernels on a GPU: constants and intermediate tensors in memory that stays, all launches of a call in one graph. */
#ifndef TUNER_CUDA_MODEL_H
#define TUNER_CUDA_MODEL_H

#include "tuner_cuda.h"

/* Where a buffer of a step lies: in an argument of the model (inputs, then outputs), or behind them in its own memory. */
struct tuner_cuda_place {
  int buffer;
  size_t offset;
};

/* One launch of a kernel, or a copy. */
struct tuner_cuda_step {
  struct tuner_cuda_function *kernel;    /* NULL: a copy of `bytes` from the first place to the second */
  int launch;                            /* of the kernel's launches */
  const struct tuner_cuda_place *places; /* of each of the kernel's buffers */
  size_t bytes;
  int count;
  const int *after; /* steps that end before this one begins; earlier ones */
};

struct tuner_cuda_loaded_model {
  void *context;
  uint64_t memory;  /* constants, then intermediate tensors */
  uint64_t staging; /* inputs and outputs of calls with arrays of the host; 0 until the first */
  void *graph, *executable, **nodes;
  int *kernels;        /* of each step the place in its kernel's `loaded` */
  uint64_t *addresses; /* of the arguments that the graph has */
};

/* All but `loaded` is constant. */
struct tuner_cuda_model {
  struct tuner_cuda_signature signature;
  const unsigned char *constants;
  size_t constant_bytes, memory_bytes; /* the memory begins with the constants */
  int steps;
  const struct tuner_cuda_step *step;
  struct tuner_cuda_loaded_model loaded[TUNER_CUDA_CONTEXTS];
};

/* Does a call on device addresses, inputs then outputs, as `tuner_cuda_call`. The first call in a context loads the model and
 * waits for that. Calls share the model's memory: they run one after another, whatever their streams. */
TUNER_CUDA_HIDDEN int tuner_cuda_model_call(struct tuner_cuda_model *model, const uint64_t *buffers, void *stream);

/* Does a call on arrays of the host, and waits for it. */
TUNER_CUDA_HIDDEN int tuner_cuda_model_call_host(struct tuner_cuda_model *model, void *const *arrays);

/* Does the steps one after another, and gives the seconds of each. Waits for them. */
TUNER_CUDA_HIDDEN int tuner_cuda_model_times(struct tuner_cuda_model *model, const uint64_t *buffers, void *stream,
                                             double *seconds);

#endif
