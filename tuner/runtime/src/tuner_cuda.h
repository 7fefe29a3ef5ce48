/* Launches embedded CUDA kernels through NVIDIA's driver, which is opened at the first call: nothing links against it. */
#ifndef TUNER_CUDA_H
#define TUNER_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define TUNER_CUDA_HIDDEN __attribute__((visibility("hidden")))
#define TUNER_CUDA_EXPORT __attribute__((visibility("default")))

enum {
  TUNER_CUDA_ALIGNMENT = 16, /* bytes; the widest load of one thread */
  TUNER_CUDA_CONTEXTS = 16,  /* in which one function can be loaded */
  TUNER_CUDA_KERNELS = 64,   /* device functions of one function */
  TUNER_CUDA_BUFFERS = 128,  /* arguments and workspace of one function */
  TUNER_CUDA_MAPS = 8,       /* tensor maps of one device function */
};

/* The first seven are those of libraries for CPUs. */
enum tuner_cuda_status {
  TUNER_CUDA_OK = 0,
  TUNER_CUDA_ERROR_NULL = 1,
  TUNER_CUDA_ERROR_ALIGNMENT = 2,
  TUNER_CUDA_ERROR_OVERLAP = 3,
  TUNER_CUDA_ERROR_ARCHITECTURE = 5, /* none of the embedded cubins runs on the device */
  TUNER_CUDA_ERROR_MEMORY = 6,
  TUNER_CUDA_ERROR_INTERNAL = 7,
  TUNER_CUDA_ERROR_DRIVER = 8, /* there is no driver, or it reported an error; tuner_cuda_last_error has its words */
};

/* A buffer as the tensor memory accelerator sees it; dimensions innermost first, 128-byte swizzle. */
struct tuner_cuda_map {
  int buffer; /* its place among the function's buffers */
  int type;   /* CUtensorMapDataType */
  unsigned int rank;
  uint64_t extents[5], strides[5]; /* elements; bytes from the second dimension on */
  uint32_t box[5], steps[5];       /* elements; from one that is copied to the next */
};

struct tuner_cuda_launch {
  const char *kernel;
  unsigned int grid[3], block[3], shared_bytes;
  int count;            /* of arguments */
  const int *arguments; /* places among the function's buffers: inputs, outputs, workspace */
  int mapped;           /* parameters before them that are tensor maps */
  const struct tuner_cuda_map *map;
};

struct tuner_cuda_cubin {
  int major, minor; /* the compute capability it was made for */
  const unsigned char *code;
};

struct tuner_cuda_signature {
  const char *symbol;
  int inputs, outputs;
  const size_t *bytes; /* of each input and output; of a kernel, of its workspace behind them */
};

/* One kernel; all but `loaded` is constant. */
struct tuner_cuda_function {
  struct tuner_cuda_signature signature;
  int workspaces;
  int launches;
  const struct tuner_cuda_launch *launch;
  int cubins;
  const struct tuner_cuda_cubin *cubin;
  struct {
    void *context, *module, *kernel[TUNER_CUDA_KERNELS];
  } loaded[TUNER_CUDA_CONTEXTS];
};

/* Puts the function's launches on a stream (NULL: the default one) of the current context, or of the first device's primary
 * context where there is none. Does not wait for them. `buffers`: device addresses, inputs then outputs. */
TUNER_CUDA_HIDDEN int tuner_cuda_call(struct tuner_cuda_function *function, const uint64_t *buffers, void *stream);

/* What went wrong in this thread's last failed call. */
TUNER_CUDA_HIDDEN const char *tuner_cuda_last_error(void);

#endif
