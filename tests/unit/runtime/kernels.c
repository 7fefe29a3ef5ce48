/* Kernels written by hand against the calling convention of compiled ones, so that the runtime is tested without a compiler
 * of tensors. Each takes (in, out) buffers of 1024 float32 unless it says otherwise. */
#include <stddef.h>
#include <stdint.h>

#include "tvm_abi.h"

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);
__attribute__((weak)) int (*__TVMBackendParallelLaunch)(TunerTask, void *, int);
__attribute__((weak)) void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
__attribute__((weak)) int (*__TVMBackendFreeWorkspace)(int, int, void *);

enum { COUNT = 1024 };

struct buffers {
  const float *in;
  float *out;
};

static struct buffers unpack(const TunerAny *arguments) {
  TunerDLTensor *in = arguments[0].value.v_ptr, *out = arguments[1].value.v_ptr;
  struct buffers result = {in->data, out->data};
  return result;
}

/* Does nothing: what a call costs by itself. */
int entry_empty(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)arguments, (void)count, (void)result;
  return 0;
}

/* Refuses any tensor that is not what the wrapper was told: 2 arguments, 1024 float32 on the CPU, dense. */
int entry_double(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)result;
  for (int32_t i = 0; i < count; ++i) {
    TunerDLTensor *tensor = arguments[i].value.v_ptr;
    int right = count == 2 && arguments[i].type_index == TUNER_ANY_DLTENSOR && tensor->device_type == 1 && tensor->ndim == 1 &&
                tensor->shape[0] == COUNT && tensor->strides == NULL && tensor->byte_offset == 0 && tensor->dtype_code == 2 &&
                tensor->dtype_bits == 32 && tensor->dtype_lanes == 1;
    if (!right) {
      const char *parts[] = {"argument of ", NULL, "entry_double is wrong"};
      TVMFFIErrorSetRaisedFromCStrParts("TypeError", parts, 3);
      return -1;
    }
  }
  struct buffers buffers = unpack(arguments);
  for (int i = 0; i < COUNT; ++i) buffers.out[i] = 2 * buffers.in[i];
  return 0;
}

/* Each task doubles its share and writes the number of tasks over the first element of the share. */
static int double_share(int task, TunerParallelEnv *env, void *closure) {
  struct buffers *buffers = closure;
  int share = (COUNT + env->num_task - 1) / env->num_task;
  int end = (task + 1) * share < COUNT ? (task + 1) * share : COUNT;
  for (int i = task * share; i < end; ++i) buffers->out[i] = 2 * buffers->in[i];
  return 0;
}

int entry_parallel(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)count, (void)result;
  struct buffers buffers = unpack(arguments);
  return __TVMBackendParallelLaunch(double_share, &buffers, 0);
}

/* out[task] = number of tasks, for as many tasks as asked for in in[0]; the rest stays. */
static int note_task(int task, TunerParallelEnv *env, void *closure) {
  ((struct buffers *)closure)->out[task] = (float)env->num_task;
  return 0;
}

int entry_tasks(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)count, (void)result;
  struct buffers buffers = unpack(arguments);
  return __TVMBackendParallelLaunch(note_task, &buffers, (int)buffers.in[0]);
}

/* A parallel loop in each task of a parallel loop. */
static int launch_inner(int task, TunerParallelEnv *env, void *closure) {
  struct buffers *outer = closure;
  int share = COUNT / env->num_task;
  struct buffers inner = {outer->in + task * share, outer->out + task * share};
  (void)inner;
  return task == 0 ? __TVMBackendParallelLaunch(double_share, outer, 0) : 0;
}

int entry_nested(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)count, (void)result;
  struct buffers buffers = unpack(arguments);
  return __TVMBackendParallelLaunch(launch_inner, &buffers, 0);
}

/* The last task fails with a text. */
static int fail_last(int task, TunerParallelEnv *env, void *closure) {
  (void)closure;
  if (task != env->num_task - 1) return 0;
  const char *parts[] = {"the last task ", "gave up"};
  TVMFFIErrorSetRaisedFromCStrParts("ValueError", parts, 2);
  return -1;
}

int entry_failing(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)arguments, (void)count, (void)result;
  return __TVMBackendParallelLaunch(fail_last, NULL, 0);
}

int entry_silent(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)arguments, (void)count, (void)result;
  return -1;
}

/* Doubles through two workspaces of different sizes; out[0] counts misaligned ones instead where there are any. */
int entry_workspace(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)count, (void)result;
  struct buffers buffers = unpack(arguments);
  float *first = __TVMBackendAllocWorkspace(1, 0, COUNT * sizeof(float), 2, 32);
  if (first == NULL) return -1;
  float *second = __TVMBackendAllocWorkspace(1, 0, 3 * COUNT * sizeof(float), 2, 32);
  if (second == NULL) return -1;
  for (int i = 0; i < COUNT; ++i) first[i] = buffers.in[i];
  for (int i = 0; i < 3 * COUNT; ++i) second[i] = first[i % COUNT];
  for (int i = 0; i < COUNT; ++i) buffers.out[i] = first[i] + second[2 * COUNT + i];
  int misaligned = ((uintptr_t)first % 64 != 0) + ((uintptr_t)second % 64 != 0);
  if (misaligned) buffers.out[0] = -1.0f;
  if (__TVMBackendFreeWorkspace(1, 0, second) != 0) return -1;
  return __TVMBackendFreeWorkspace(1, 0, first);
}

/* Asks for more memory than there is. */
int entry_greedy(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  (void)self, (void)arguments, (void)count, (void)result;
  void *memory = __TVMBackendAllocWorkspace(1, 0, (uint64_t)1 << 61, 2, 32);
  return memory == NULL ? -1 : 0;
}
