/* Looks up instruction-set features, which kernels list: by CPUID on x86-64, by the auxiliary vector on 64-bit Arm. */
#include "cpu_features.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(__aarch64__)
/* Whether TUNED_CPU_WITHOUT, features with commas between them, names this one: so that what a lesser CPU gets can be tried. */
static int hidden(const char *name) {
  const char *list = getenv("TUNED_CPU_WITHOUT");
  size_t length = strlen(name);
  while (list != NULL && *list != '\0') {
    size_t word = strcspn(list, ",");
    if (word == length && strncmp(list, name, length) == 0) return 1;
    list += word + (list[word] == ',');
  }
  return 0;
}
#endif

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t saved_registers(void) {
  uint32_t low, high, a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((uint64_t)high << 32) | low;
}

static int has_feature(const struct tuner_feature *feature) {
  uint32_t regs[4];
  if (hidden(feature->name)) return 0;
  if (feature->xcr0 != 0 && (saved_registers() & feature->xcr0) != feature->xcr0) return 0;
  if (!__get_cpuid_count(feature->leaf, feature->subleaf, &regs[0], &regs[1], &regs[2], &regs[3])) return 0;
  return (regs[feature->reg] >> feature->bit) & 1u;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

#include "scalable_vectors.h"

/* The kernel tells of features by bits of the auxiliary vector; `leaf` is the entry's type, AT_HWCAP or AT_HWCAP2. Type 0 ends
 * that vector, and stands for scalable vectors of `subleaf` bytes. */
static int has_feature(const struct tuner_feature *feature) {
  if (hidden(feature->name)) return 0;
  if (feature->leaf == 0) return tuner_vector_length() == feature->subleaf;
  return (getauxval(feature->leaf) >> feature->bit) & 1u;
}
#else
/* Elsewhere libraries are built for the machine's own baseline and carry no feature list that could be looked up. */
static int has_feature(const struct tuner_feature *feature) {
  (void)feature;
  return 1;
}
#endif

/* The name of a feature that the kernel wants and this CPU lacks; null when it has all. */
static const char *lacking(const struct tuner_function *function) {
  for (int32_t i = 0; i < function->num_features; ++i) {
    if (!has_feature(&function->features[i])) return function->features[i].name;
  }
  return NULL;
}

static const struct tuner_function *refuse_isa(const struct tuner_function *function, const char *missing) {
  tuner_fail(TUNER_ERROR_ISA, "%s: this CPU lacks %s, for which the kernel was compiled; export one for this machine",
             function->symbol, missing);
  return NULL;
}

/* What was found is remembered; looking twice at once finds the same. */
const struct tuner_function *tuner_supported(const struct tuner_function *function) {
  int state = atomic_load_explicit(function->isa_state, memory_order_relaxed);
  const char *missing = NULL;
  if (function->num_variants == 0) {
    if (state == 0 && (missing = lacking(function)) != NULL) return refuse_isa(function, missing);
    if (state == 0) atomic_store_explicit(function->isa_state, 1, memory_order_relaxed);
    return function;
  }
  if (state == 0) {
    while (state < function->num_variants && (missing = lacking(function->variants[state])) != NULL) state += 1;
    if (missing != NULL) return refuse_isa(function, missing);
    state += 1;
    atomic_store_explicit(function->isa_state, state, memory_order_relaxed);
  }
  return function->variants[state - 1];
}
