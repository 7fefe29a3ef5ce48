/* What a kernel relies on of the integers in its inputs. */
#ifndef TUNER_FACTS_H
#define TUNER_FACTS_H

#include "error.h"
#include "function.h"

/* TUNER_ERROR_VALUE for the first input that contradicts what its table says of it, else TUNER_OK. `vector_bytes` as in the table
 * of a kernel that this CPU runs. Threads that the present call may use share the checks of long inputs. */
TUNER_HIDDEN int tuner_check_facts(const struct tuner_function *function, void *const *buffers, int32_t vector_bytes);

#endif
