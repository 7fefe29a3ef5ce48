/* SHA-256 (FIPS 180-4). */
#ifndef TUNER_AGENT_SHA256_H
#define TUNER_AGENT_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* The digest of `bytes` bytes of data. */
void sha256(const void *data, size_t bytes, uint8_t digest[32]);

#endif
