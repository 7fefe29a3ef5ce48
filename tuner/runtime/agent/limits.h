/* What one core can do: tuner/target/limits.c, which the agent is linked with. */
#ifndef TUNER_AGENT_LIMITS_H
#define TUNER_AGENT_LIMITS_H

#include <stddef.h>

enum { LIMIT_ROWS = 32 };

/* Fills the multiply-add rate (median, best) and rows by working set: bytes, then read, write and copy in bytes a second.
 * Returns the number of rows: 0 where the compiler writes slower code for this core than a kernel may be. */
int tuner_limits(double seconds, size_t largest, double fma[2], double rows[][4], int most);

#endif
