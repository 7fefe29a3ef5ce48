/* Checks of the integers that a kernel takes for places of rows, and for indices.
 * One pass finds out whether anything is wrong, without a branch for each element, and only then a second one says what. */
#include "facts.h"

#include <string.h>

enum { BLOCK_BYTES = 64 }; /* as buffers are aligned; the compiler makes vectors of the target's length of it */

/* Of 2^31 or 2^63 numbers from `start` on, a number is among the first `last` + 1 if neither its distance nor what is left has the
 * sign bit; differences wrap around. Signs are collected, so that there is no branch for each element. */
#define DEFINE_CHECKS(BITS)                                                                                      \
  typedef uint##BITS##_t block_##BITS __attribute__((vector_size(BLOCK_BYTES)));                                 \
  static int all_positive_##BITS(const block_##BITS *signs, uint##BITS##_t rest) {                               \
    for (size_t lane = 0; lane < sizeof *signs / sizeof rest; ++lane) rest |= (*signs)[lane];                    \
    return (rest >> (BITS - 1)) == 0;                                                                            \
  }                                                                                                              \
  static int within_##BITS(const uint##BITS##_t *x, int64_t length, uint##BITS##_t start, uint##BITS##_t last) { \
    enum { LANES = BLOCK_BYTES * 8 / BITS };                                                                     \
    const block_##BITS *blocks = (const block_##BITS *)x;                                                        \
    block_##BITS signs = {0};                                                                                    \
    uint##BITS##_t rest = 0;                                                                                     \
    for (int64_t i = 0; i < length / LANES; ++i) signs |= (blocks[i] - start) | (last - (blocks[i] - start));    \
    for (int64_t i = length / LANES * LANES; i < length; ++i) rest |= (x[i] - start) | (last - (x[i] - start));  \
    return all_positive_##BITS(&signs, rest);                                                                    \
  }                                                                                                              \
  static int rising_##BITS(const uint##BITS##_t *x, int64_t length) {                                            \
    enum { LANES = BLOCK_BYTES * 8 / BITS };                                                                     \
    block_##BITS signs = {0}, next;                                                                              \
    uint##BITS##_t rest = 0;                                                                                     \
    int64_t i = 0;                                                                                               \
    for (; i + LANES < length; i += LANES) {                                                                     \
      memcpy(&next, x + i + 1, sizeof next);                                                                     \
      signs |= next - *(const block_##BITS *)(x + i);                                                            \
    }                                                                                                            \
    for (; i + 1 < length; ++i) rest |= x[i + 1] - x[i];                                                         \
    return all_positive_##BITS(&signs, rest);                                                                    \
  }

DEFINE_CHECKS(32)
DEFINE_CHECKS(64)

static int64_t length_of(const struct tuner_argument *argument) {
  return (int64_t)(argument->nbytes / (argument->dtype_bits / 8u));
}

static int64_t element(const struct tuner_argument *argument, const void *data, int64_t place) {
  return argument->dtype_bits == 32 ? ((const int32_t *)data)[place] : ((const int64_t *)data)[place];
}

static int holds(const struct tuner_argument *argument, const void *data) {
  int64_t length = length_of(argument), span = argument->fact_stop - 1 - argument->fact_start;
  int splits = argument->fact == TUNER_SPLITS;
  if (splits && element(argument, data, 0) != 0) return 0;
  if (argument->dtype_bits == 32)
    return within_32(data, length, (uint32_t)argument->fact_start, (uint32_t)span) && (!splits || rising_32(data, length));
  return within_64(data, length, (uint64_t)argument->fact_start, (uint64_t)span) && (!splits || rising_64(data, length));
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

int tuner_check_facts(const struct tuner_function *function, void *const *buffers) {
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    const struct tuner_argument *argument = &function->arguments[i];
    if (argument->fact == TUNER_NO_FACT || holds(argument, buffers[i])) continue;
    int status = explain(function, argument, buffers[i]);
    if (status != TUNER_OK) return status;
  }
  return TUNER_OK;
}
