/* What a candidate's process does to itself before it loads generated code. */
#ifndef TUNER_AGENT_FENCE_H
#define TUNER_AGENT_FENCE_H

#include <stdint.h>

/* Only `channel` stays open, as the returned number; standard streams lead nowhere. -1 where that fails. */
int leave_descriptors(int channel);

/* Fences the calling process, which has one thread. Returns what is in force (enum fence); -1 where the kernel has a mechanism
 * and refuses it. `memory_bytes` are beyond those that the process has mapped. */
int fence(uint64_t memory_bytes, uint32_t cpu_s);

#endif
