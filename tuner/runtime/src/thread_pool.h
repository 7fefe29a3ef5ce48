/* Threads of the parallel loops of kernels. */
#ifndef TUNER_THREADS_H
#define TUNER_THREADS_H

#include "error.h"
#include "tvm_abi.h"

enum { TUNER_MAX_THREADS = 256 };

/* Threads for all later calls of this library, 1..TUNER_MAX_THREADS; 0: as many as each kernel was tuned for. */
TUNER_HIDDEN int tuner_set_num_threads(int count);
/* Threads a call of a kernel tuned for `tuned` threads may use now; noted for the calling thread's next launches. */
TUNER_HIDDEN void tuner_begin_call(int tuned);
/* Calls `lane` with each number below `lanes`, side by side on as many threads as calls may use, else one after the other. A
 * parallel loop inside a lane runs on the lane's own thread. Returns an enum tuner_status: that of the first lane that failed. */
TUNER_HIDDEN int tuner_run_lanes(TunerTask lane, void *closure, int lanes);
/* Calls `share` once for each thread that the present call may use, with these as the number of tasks. It must not fail. */
TUNER_HIDDEN void tuner_run_shares(TunerTask share, void *closure);

#endif
