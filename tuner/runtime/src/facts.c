/* Checks of the integers that a kernel takes for places of rows, and for indices.
 * One pass finds out whether anything is wrong, without a branch for each element, and only then a second one says what. */
#include "facts.h"

#include <stdatomic.h>
#include <string.h>

#include "thread_pool.h"

/* Of all checked integers of a call: from here on its threads share the pass, which saves more than their launch takes. */
enum { SHARED_BYTES = 1 << 17 };

/* Blocks are as long as vectors: of longer ones GCC 12 makes bad code. Buffers are aligned to all. */
#define DEFINE_BLOCK(BITS, BYTES)                                                                  \
  typedef uint##BITS##_t block_##BITS##_##BYTES __attribute__((vector_size(BYTES)));               \
  static int positive_##BITS##_##BYTES(const block_##BITS##_##BYTES *signs, uint##BITS##_t rest) { \
    for (size_t lane = 0; lane < sizeof *signs / sizeof rest; ++lane) rest |= (*signs)[lane];      \
    return (rest >> (BITS - 1)) == 0;                                                              \
  }

DEFINE_BLOCK(32, 16)
DEFINE_BLOCK(64, 16)
DEFINE_BLOCK(32, 32)
DEFINE_BLOCK(64, 32)
DEFINE_BLOCK(32, 64)
DEFINE_BLOCK(64, 64)

/* Of elements: from the first to less than the end. */
struct range {
  int64_t first, end;
};

static int64_t length_of(const struct tuner_argument *argument) {
  return (int64_t)(argument->nbytes / (argument->dtype_bits / 8u));
}

static int64_t element(const struct tuner_argument *argument, const void *data, int64_t place) {
  return argument->dtype_bits == 32 ? ((const int32_t *)data)[place] : ((const int64_t *)data)[place];
}

/* Of 2^31 or 2^63 numbers from `start` on, a number is among the first `last` + 1 if neither its distance nor what is left has the
 * sign bit; differences wrap around. Numbers rise where neither they nor their differences have it. Signs are collected, so that
 * there is no branch for each element. Indices are read from the last to the first: where they do not fit the caches, the kernel
 * that follows finds the first ones there. */
#define DEFINE_CHECKS(BITS, BYTES, NAME, TARGET)                                                                                 \
  TARGET static int within_##BITS##_##NAME(const uint##BITS##_t *x, int64_t length, uint##BITS##_t start, uint##BITS##_t last) { \
    enum { LANES = BYTES * 8 / BITS };                                                                                           \
    block_##BITS##_##BYTES signs = {0}, offset;                                                                                  \
    uint##BITS##_t rest = 0;                                                                                                     \
    int64_t i = length;                                                                                                          \
    for (; i % LANES != 0; --i) rest |= (x[i - 1] - start) | (last - (x[i - 1] - start));                                        \
    for (; i > 0; i -= LANES) {                                                                                                  \
      offset = *(const block_##BITS##_##BYTES *)(x + i - LANES) - start;                                                         \
      signs |= offset | (last - offset);                                                                                         \
    }                                                                                                                            \
    return positive_##BITS##_##BYTES(&signs, rest);                                                                              \
  }                                                                                                                              \
  TARGET static int rising_##BITS##_##NAME(const uint##BITS##_t *x, int64_t length) {                                            \
    enum { LANES = BYTES * 8 / BITS };                                                                                           \
    block_##BITS##_##BYTES signs = {0}, here, next;                                                                              \
    uint##BITS##_t rest = x[length - 1];                                                                                         \
    int64_t i = 0;                                                                                                               \
    for (; i + LANES < length; i += LANES) {                                                                                     \
      here = *(const block_##BITS##_##BYTES *)(x + i);                                                                           \
      memcpy(&next, x + i + 1, sizeof next);                                                                                     \
      signs |= here | (next - here);                                                                                             \
    }                                                                                                                            \
    for (; i + 1 < length; ++i) rest |= x[i] | (x[i + 1] - x[i]);                                                                \
    return positive_##BITS##_##BYTES(&signs, rest);                                                                              \
  }

#define DEFINE_HOLDS(BYTES, NAME, TARGET)                                                               \
  DEFINE_CHECKS(32, BYTES, NAME, TARGET)                                                                \
  DEFINE_CHECKS(64, BYTES, NAME, TARGET)                                                                \
  static int holds_##NAME(const struct tuner_argument *argument, const void *data, struct range part) { \
    int64_t length = length_of(argument), start = argument->fact_start, last = argument->fact_stop - 1; \
    int64_t count = part.end - part.first;                                                              \
    const void *from = (const char *)data + part.first * (argument->dtype_bits / 8);                    \
    int narrow = argument->dtype_bits == 32;                                                            \
    if (argument->fact == TUNER_SPLITS) {                                                               \
      if (element(argument, data, 0) != 0 || element(argument, data, length - 1) > last) return 0;      \
      if (part.end < length) count += 1; /* the first one behind the part is compared with its last */  \
      return narrow ? rising_32_##NAME(from, count) : rising_64_##NAME(from, count);                    \
    }                                                                                                   \
    return narrow ? within_32_##NAME(from, count, (uint32_t)start, (uint32_t)(last - start))            \
                  : within_64_##NAME(from, count, (uint64_t)start, (uint64_t)(last - start));           \
  }

DEFINE_HOLDS(16, baseline, )
#if defined(__x86_64__)
DEFINE_HOLDS(32, avx2, __attribute__((target("avx2"))))
DEFINE_HOLDS(64, avx512, __attribute__((target("avx512f"))))
#endif

/* Whether a fact holds of some elements, at least one. */
static int holds(const struct tuner_argument *argument, const void *data, struct range part, int32_t vector_bytes) {
#if defined(__x86_64__)
  if (vector_bytes >= 64) return holds_avx512(argument, data, part);
  if (vector_bytes >= 32) return holds_avx2(argument, data, part);
#endif
  (void)vector_bytes;
  return holds_baseline(argument, data, part);
}

struct pass {
  const struct tuner_function *function;
  void *const *buffers;
  int32_t vector_bytes;
  atomic_int contradicted;
};

/* One of `num_task` parts of each checked argument. All but the last are whole vectors, because vectors are loaded where they are
 * aligned. A part is about what the kernel's thread of this number reads next. */
static int check_part(int task, TunerParallelEnv *env, void *closure) {
  enum { LONGEST = 16 }; /* lanes of a vector */
  struct pass *pass = closure;
  for (int32_t i = 0; i < pass->function->num_arguments; ++i) {
    const struct tuner_argument *argument = &pass->function->arguments[i];
    if (argument->fact == TUNER_NO_FACT) continue;
    const int64_t length = length_of(argument), vectors = (length + LONGEST - 1) / LONGEST;
    const int64_t most = (vectors + env->num_task - 1) / env->num_task * LONGEST;
    struct range part = {task * most, (task + 1) * most};
    if (part.end > length) part.end = length;
    if (part.first < part.end && !holds(argument, pass->buffers[i], part, pass->vector_bytes))
      atomic_store_explicit(&pass->contradicted, 1, memory_order_relaxed);
  }
  return 0;
}

static int explain(const struct tuner_function *function, const struct tuner_argument *argument, const void *data) {
  int64_t length = length_of(argument), before = 0;
  for (int64_t place = 0; place < length; ++place) {
    int64_t value = element(argument, data, place);
    if (value < argument->fact_start || value >= argument->fact_stop)
      return tuner_fail(TUNER_ERROR_VALUE, "%s: %s[%lld] is %lld; it must be from %lld to %lld", function->symbol, argument->name,
                        (long long)place, (long long)value, (long long)argument->fact_start, (long long)argument->fact_stop - 1);
    if (argument->fact != TUNER_SPLITS) continue;
    if (place == 0 && value != 0)
      return tuner_fail(TUNER_ERROR_VALUE, "%s: %s[0] is %lld; the first row begins at 0", function->symbol, argument->name,
                        (long long)value);
    if (value < before)
      return tuner_fail(TUNER_ERROR_VALUE, "%s: %s[%lld] is %lld, less than the element before, %lld; rows begin in order",
                        function->symbol, argument->name, (long long)place, (long long)value, (long long)before);
    before = value;
  }
  return TUNER_OK;
}

int tuner_check_facts(const struct tuner_function *function, void *const *buffers, int32_t vector_bytes) {
  const struct tuner_argument *arguments = function->arguments;
  uint64_t nbytes = 0;
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    if (arguments[i].fact != TUNER_NO_FACT) nbytes += arguments[i].nbytes;
  }
  if (nbytes == 0) return TUNER_OK;
  struct pass pass = {function, buffers, vector_bytes, 0};
  if (nbytes >= SHARED_BYTES) {
    tuner_run_shares(check_part, &pass);
  } else {
    check_part(0, &(TunerParallelEnv){NULL, 1}, &pass);
  }
  if (!atomic_load_explicit(&pass.contradicted, memory_order_relaxed)) return TUNER_OK;
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    int status = arguments[i].fact == TUNER_NO_FACT ? TUNER_OK : explain(function, &arguments[i], buffers[i]);
    if (status != TUNER_OK) return status;
  }
  return TUNER_OK;
}
