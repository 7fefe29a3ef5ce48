/* Guarded buffers: guard page, canary, data, canary, guard page. The data ends within 64 bytes of the rear guard page. */
#ifndef TUNER_AGENT_BUFFERS_H
#define TUNER_AGENT_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

struct buffer {
  uint8_t *mapping, *data;
  size_t mapped, bytes, page;
};

/* A new buffer, zeroed. 0, or -1 where there is no memory. */
int buffer_make(struct buffer *buffer, size_t bytes);

/* enum around: whether canary bytes were overwritten. */
uint32_t buffer_damage(const struct buffer *buffer);

/* Whether an address lies in one of the guard pages. */
int buffer_guards(const struct buffer *buffer, const void *address);

#endif
