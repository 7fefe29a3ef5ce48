/* Memory of callers and of kernels. */
#ifndef TUNER_WORKSPACE_H
#define TUNER_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { TUNER_ALIGNMENT = 64 }; /* bytes; generated code uses aligned vector loads of up to this width */

/* Memory as kernels get it for temporaries: kept by the thread for its next call. */
TUNER_HIDDEN void *tuner_workspace(uint64_t nbytes);
TUNER_HIDDEN void tuner_workspace_free(void *memory);
TUNER_HIDDEN uint64_t tuner_workspace_bytes(void); /* the most that all threads held together so far */

/* 64-byte aligned memory; null and an error text when there is none. */
TUNER_HIDDEN void *tuner_alloc(size_t nbytes);
TUNER_HIDDEN void tuner_free(void *memory);

#endif
