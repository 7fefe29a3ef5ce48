/* How long the core's scalable vectors are, for the runtime and the agent. */
#ifndef TUNER_SCALABLE_VECTORS_H
#define TUNER_SCALABLE_VECTORS_H

#include <stdint.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* Bytes of a vector as the calling thread has it; 0 where there is none. By an instruction, since a fenced process may not ask
 * Linux, and as a number, since compilers for other cores do not know it: rdvl x0, #1. */
static inline uint64_t tuner_vector_length(void) {
#if defined(__aarch64__)
  if (getauxval(AT_HWCAP) >> 22 & 1) { /* HWCAP_SVE */
    register uint64_t length __asm__("x0");
    __asm__ volatile(".inst 0x04bf5020" : "=r"(length));
    return length;
  }
#endif
  return 0;
}

#endif
