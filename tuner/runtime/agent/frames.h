/* Whole frames over descriptors. */
#ifndef TUNER_AGENT_FRAMES_H
#define TUNER_AGENT_FRAMES_H

#include <stddef.h>
#include <stdint.h>

/* Reads all of it. 0, or -1 at the end of the stream and for an error. */
int read_all(int from, void *data, size_t bytes);

/* Writes all of it. 0, or -1 for an error. */
int write_all(int to, const void *data, size_t bytes);

/* Writes a frame of one or two parts. 0, or -1. */
int send_frame(int to, uint32_t type, const void *first, size_t first_bytes, const void *second, size_t second_bytes);

#endif
