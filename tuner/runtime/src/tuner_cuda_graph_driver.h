/* The part of NVIDIA's driver API that only models use: memory that stays, copies, graphs, events. Declared as in
 * tuner_cuda_driver.h, and held to the toolkit's own cuda.h by the same test. All of it is there since CUDA 12. */
#ifndef TUNER_CUDA_GRAPH_DRIVER_H
#define TUNER_CUDA_GRAPH_DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum {
  TUNER_CUDA_ON_DEVICE = 2,    /* CU_MEMORYTYPE_DEVICE */
  TUNER_CUDA_NOT_CAPTURED = 0, /* CU_STREAM_CAPTURE_STATUS_NONE */
};

/* CUDA_KERNEL_NODE_PARAMS_v2 */
struct tuner_cuda_kernel_node {
  void *function;
  unsigned int grid[3], block[3], shared_bytes;
  void **parameters, **extra;
  void *kernel, *context;
};

/* One end of CUDA_MEMCPY3D_v2 */
struct tuner_cuda_copy_end {
  size_t x_bytes, y, z, level;
  int kind;
  void *host;
  uint64_t device;
  void *array, *reserved;
  size_t pitch, height;
};

/* CUDA_MEMCPY3D_v2 */
struct tuner_cuda_copy_node {
  struct tuner_cuda_copy_end source, destination;
  size_t width_bytes, height, depth;
};

struct tuner_cuda_graph_driver {
  int (*cuMemAlloc)(uint64_t *address, size_t bytes);
  int (*cuMemFree)(uint64_t address);
  int (*cuMemcpyHtoDAsync)(uint64_t to, const void *from, size_t bytes, void *stream);
  int (*cuMemcpyDtoHAsync)(void *to, uint64_t from, size_t bytes, void *stream);
  int (*cuMemcpyDtoDAsync)(uint64_t to, uint64_t from, size_t bytes, void *stream);
  int (*cuStreamSynchronize)(void *stream);
  int (*cuStreamIsCapturing)(void *stream, int *status);
  int (*cuGraphCreate)(void **graph, unsigned int flags);
  int (*cuGraphDestroy)(void *graph);
  int (*cuGraphAddKernelNode)(void **node, void *graph, void *const *after, size_t count,
                              const struct tuner_cuda_kernel_node *parameters);
  int (*cuGraphAddMemcpyNode)(void **node, void *graph, void *const *after, size_t count,
                              const struct tuner_cuda_copy_node *parameters, void *context);
  int (*cuGraphInstantiate)(void **executable, void *graph, unsigned long long flags);
  int (*cuGraphExecDestroy)(void *executable);
  int (*cuGraphExecKernelNodeSetParams)(void *executable, void *node, const struct tuner_cuda_kernel_node *parameters);
  int (*cuGraphExecMemcpyNodeSetParams)(void *executable, void *node, const struct tuner_cuda_copy_node *parameters,
                                        void *context);
  int (*cuGraphLaunch)(void *executable, void *stream);
  int (*cuEventCreate)(void **event, unsigned int flags);
  int (*cuEventDestroy)(void *event);
  int (*cuEventRecord)(void *event, void *stream);
  int (*cuEventElapsedTime)(float *milliseconds, void *start, void *end);
};

/* Each field with the name it has in the library. */
#define TUNER_CUDA_GRAPH_DRIVER(DO)                                         \
  DO(cuMemAlloc, "cuMemAlloc_v2")                                           \
  DO(cuMemFree, "cuMemFree_v2")                                             \
  DO(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                             \
  DO(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")                             \
  DO(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2")                             \
  DO(cuStreamSynchronize, "cuStreamSynchronize")                            \
  DO(cuStreamIsCapturing, "cuStreamIsCapturing")                            \
  DO(cuGraphCreate, "cuGraphCreate")                                        \
  DO(cuGraphDestroy, "cuGraphDestroy")                                      \
  DO(cuGraphAddKernelNode, "cuGraphAddKernelNode_v2")                       \
  DO(cuGraphAddMemcpyNode, "cuGraphAddMemcpyNode")                          \
  DO(cuGraphInstantiate, "cuGraphInstantiateWithFlags")                     \
  DO(cuGraphExecDestroy, "cuGraphExecDestroy")                              \
  DO(cuGraphExecKernelNodeSetParams, "cuGraphExecKernelNodeSetParams_v2")   \
  DO(cuGraphExecMemcpyNodeSetParams, "cuGraphExecMemcpyNodeSetParams")      \
  DO(cuGraphLaunch, "cuGraphLaunch")                                        \
  DO(cuEventCreate, "cuEventCreate")                                        \
  DO(cuEventDestroy, "cuEventDestroy_v2")                                   \
  DO(cuEventRecord, "cuEventRecord")                                        \
  DO(cuEventElapsedTime, "cuEventElapsedTime")

#endif
