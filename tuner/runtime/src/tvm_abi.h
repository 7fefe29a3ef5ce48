/* The few structures through which TVM 0.27 kernels are called, declared here so that nothing of TVM is needed to compile or run.
 * Layouts follow DLPack 1.x (DLTensor) and the tvm-ffi 0.1 C ABI (TVMFFIAny, TVMParallelGroupEnv); the static assertions below
 * pin every offset that generated code reads. */
#ifndef TUNER_TVM_ABI_H
#define TUNER_TVM_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  void *data;
  int32_t device_type; /* 1: CPU */
  int32_t device_id;
  int32_t ndim;
  uint8_t dtype_code; /* 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
  uint8_t dtype_bits;
  uint16_t dtype_lanes;
  const int64_t *shape;
  const int64_t *strides; /* null: dense, row-major */
  uint64_t byte_offset;
} TunerDLTensor;

typedef struct {
  int32_t type_index;
  uint32_t padding; /* zero */
  union {
    int64_t v_int64;
    void *v_ptr;
  } value;
} TunerAny;

typedef struct {
  void *sync_handle;
  int32_t num_task;
} TunerParallelEnv;

#define TUNER_ANY_NONE 0
#define TUNER_ANY_DLTENSOR 7

typedef int (*TunerEntry)(void *self, const TunerAny *arguments, int32_t count, TunerAny *result);
typedef int (*TunerTask)(int task_id, TunerParallelEnv *env, void *closure);

enum { TUNER_POINTER = sizeof(void *) };
_Static_assert(TUNER_POINTER == 8 || (TUNER_POINTER == 4 && sizeof(int64_t) == _Alignof(int64_t)), "64 bits, or WebAssembly's 32");
_Static_assert(sizeof(TunerDLTensor) == 32 + 2 * TUNER_POINTER, "DLTensor is 48 bytes, 40 with pointers of 32 bits");
_Static_assert(offsetof(TunerDLTensor, device_type) == TUNER_POINTER, "DLTensor.device");
_Static_assert(offsetof(TunerDLTensor, ndim) == 8 + TUNER_POINTER, "DLTensor.ndim");
_Static_assert(offsetof(TunerDLTensor, dtype_code) == 12 + TUNER_POINTER, "DLTensor.dtype");
_Static_assert(offsetof(TunerDLTensor, dtype_lanes) == 14 + TUNER_POINTER, "DLTensor.dtype.lanes");
_Static_assert(offsetof(TunerDLTensor, shape) == 16 + TUNER_POINTER, "DLTensor.shape");
_Static_assert(offsetof(TunerDLTensor, strides) == 16 + 2 * TUNER_POINTER, "DLTensor.strides");
_Static_assert(offsetof(TunerDLTensor, byte_offset) == 24 + 2 * TUNER_POINTER, "DLTensor.byte_offset");
_Static_assert(sizeof(TunerAny) == 16, "TVMFFIAny is 16 bytes");
_Static_assert(offsetof(TunerAny, value) == 8, "TVMFFIAny.v_ptr");
_Static_assert(offsetof(TunerParallelEnv, num_task) == TUNER_POINTER, "TVMParallelGroupEnv.num_task");

#endif
