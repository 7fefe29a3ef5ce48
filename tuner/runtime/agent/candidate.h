/* The process of one candidate. */
#ifndef TUNER_AGENT_CANDIDATE_H
#define TUNER_AGENT_CANDIDATE_H

#include <stdnoreturn.h>

#include "blobs.h"
#include "protocol.h"

/* Keeps the calling process to so many of its cores, the last ones: they are often the fast ones. */
void keep_to_cores(uint32_t threads);

/* Fences the calling process, just forked, loads the library and answers requests on `channel` until that ends.
 * `fences` are those that must be in force. */
noreturn void candidate(int channel, const struct open *request, const struct blob *library, int fences);

#endif
