/* The part of NVIDIA's driver API that is used, declared here so that no toolkit is needed to compile a library.
 * Handles are pointers, CUresult and CUdevice are int, CUdeviceptr is 64 bits; a test holds this to the toolkit's own cuda.h. */
#ifndef TUNER_CUDA_DRIVER_H
#define TUNER_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum {
  TUNER_CUDA_OUT_OF_MEMORY = 2,        /* CUDA_ERROR_OUT_OF_MEMORY */
  TUNER_CUDA_CAPABILITY_MAJOR = 75,    /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
  TUNER_CUDA_CAPABILITY_MINOR = 76,    /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR */
  TUNER_CUDA_DYNAMIC_SHARED_BYTES = 8, /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
  TUNER_CUDA_TENSOR_MAP_BYTES = 128,   /* of a CUtensorMap */
  TUNER_CUDA_TENSOR_MAP_ALIGNMENT = 128,
  TUNER_CUDA_NOT_INTERLEAVED = 0, /* CU_TENSOR_MAP_INTERLEAVE_NONE */
  TUNER_CUDA_SWIZZLE_128B = 3,    /* CU_TENSOR_MAP_SWIZZLE_128B */
  TUNER_CUDA_L2_PROMOTION = 2,    /* CU_TENSOR_MAP_L2_PROMOTION_L2_128B */
  TUNER_CUDA_ZEROS_OUTSIDE = 0,   /* CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE */
};

struct tuner_cuda_driver {
  int (*cuInit)(unsigned int flags);
  int (*cuDeviceGet)(int *device, int ordinal);
  int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
  int (*cuDevicePrimaryCtxRetain)(void **context, int device);
  int (*cuCtxGetCurrent)(void **context);
  int (*cuCtxSetCurrent)(void *context);
  int (*cuCtxGetDevice)(int *device);
  int (*cuModuleLoadData)(void **module, const void *image);
  int (*cuModuleGetFunction)(void **function, void *module, const char *name);
  int (*cuFuncSetAttribute)(void *function, int attribute, int value);
  int (*cuMemAllocAsync)(uint64_t *address, size_t bytes, void *stream);
  int (*cuMemFreeAsync)(uint64_t address, void *stream);
  int (*cuLaunchKernel)(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                        unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, void *stream, void **parameters,
                        void **extra);
  /* NULL in drivers before CUDA 12, which know no GPU that needs it. */
  int (*cuTensorMapEncodeTiled)(void *map, int type, unsigned int rank, void *address, const uint64_t *extents,
                                const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                int swizzle, int promotion, int outside);
  int (*cuGetErrorName)(int error, const char **name);
  int (*cuGetErrorString)(int error, const char **text);
};

/* Each field with the name it has in the library. */
#define TUNER_CUDA_DRIVER(DO)                                 \
  DO(cuInit, "cuInit")                                        \
  DO(cuDeviceGet, "cuDeviceGet")                              \
  DO(cuDeviceGetAttribute, "cuDeviceGetAttribute")            \
  DO(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")    \
  DO(cuCtxGetCurrent, "cuCtxGetCurrent")                      \
  DO(cuCtxSetCurrent, "cuCtxSetCurrent")                      \
  DO(cuCtxGetDevice, "cuCtxGetDevice")                        \
  DO(cuModuleLoadData, "cuModuleLoadData")                    \
  DO(cuModuleGetFunction, "cuModuleGetFunction")              \
  DO(cuFuncSetAttribute, "cuFuncSetAttribute")                \
  DO(cuMemAllocAsync, "cuMemAllocAsync")                      \
  DO(cuMemFreeAsync, "cuMemFreeAsync")                        \
  DO(cuLaunchKernel, "cuLaunchKernel")                        \
  DO(cuGetErrorName, "cuGetErrorName")                        \
  DO(cuGetErrorString, "cuGetErrorString")

/* Those that an older driver may lack. */
#define TUNER_CUDA_DRIVER_OPTIONAL(DO) DO(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled")

#endif
