/* Libraries and tensors that the host sent, by the hash of their content. */
#ifndef TUNER_AGENT_BLOBS_H
#define TUNER_AGENT_BLOBS_H

#include <stddef.h>
#include <stdint.h>

struct blob {
  uint8_t hash[32];
  uint8_t *data;
  size_t bytes;
};

/* At most so many bytes are kept. */
void blobs_limit(uint64_t bytes);

/* Memory for a blob of so many bytes, to be filled and kept; null where there is no room. */
uint8_t *blob_room(size_t bytes);

/* Keeps what was filled. 0, or -1 where its content does not have the hash; the memory is then gone. */
int blob_keep(const uint8_t hash[32], uint8_t *data, size_t bytes);

/* The blob of a hash; null where there is none. */
const struct blob *blob_find(const uint8_t hash[32]);

void blob_forget(const uint8_t hash[32]);

#endif
