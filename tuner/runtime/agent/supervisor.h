/* The parent's side of a candidate's process: starts it, passes requests and answers on, ends it in time. */
#ifndef TUNER_AGENT_SUPERVISOR_H
#define TUNER_AGENT_SUPERVISOR_H

#include <stdint.h>

#include "blobs.h"
#include "protocol.h"

/* The host reads here, and writes to `from`. */
void supervisor_init(int from, int to, int fences);

/* Whether a candidate's process is there. */
int supervised(void);

/* Each answers the host: by the candidate, or with ENDED. Returns 0, or -1 where the host is gone. */
int supervise_open(const struct open *request, const struct blob *library);
int supervise(uint32_t type, const void *payload, size_t bytes);

/* The same of our own code in a process of its own, which answers with `answer` and so many bytes at most. */
int supervise_own(uint32_t answer, size_t most, uint32_t limit_ms, void (*work)(int to, const void *), const void *request);

/* Ends the process with all that it started. */
void supervise_close(void);

#endif
