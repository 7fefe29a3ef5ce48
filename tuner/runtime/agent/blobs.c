/* Libraries and tensors that the host sent, by the hash of their content. */
#include "blobs.h"

#include <stdlib.h>
#include <string.h>

#include "protocol.h"
#include "sha256.h"

static struct blob kept[MAX_BLOBS];
static uint64_t kept_bytes, most_bytes;

void blobs_limit(uint64_t bytes) { most_bytes = bytes; }

static struct blob *place_of(const uint8_t hash[HASH]) {
  for (int i = 0; i < MAX_BLOBS; ++i)
    if (kept[i].data != NULL && memcmp(kept[i].hash, hash, HASH) == 0) return &kept[i];
  return NULL;
}

uint8_t *blob_room(size_t bytes) {
  if (bytes > MAX_BLOB || kept_bytes + bytes > most_bytes) return NULL;
  for (int i = 0; i < MAX_BLOBS; ++i)
    if (kept[i].data == NULL) return malloc(bytes + 1); /* an empty one has an address too */
  return NULL;
}

int blob_keep(const uint8_t hash[HASH], uint8_t *data, size_t bytes) {
  uint8_t digest[HASH];
  sha256(data, bytes, digest);
  if (memcmp(digest, hash, HASH) != 0) {
    free(data);
    return -1;
  }
  if (place_of(hash) != NULL) {
    free(data); /* the same content is there */
    return 0;
  }
  int place = 0;
  while (kept[place].data != NULL) ++place; /* blob_room found one */
  kept[place].data = data;
  kept[place].bytes = bytes;
  memcpy(kept[place].hash, hash, HASH);
  kept_bytes += bytes;
  return 0;
}

const struct blob *blob_find(const uint8_t hash[HASH]) { return place_of(hash); }

void blob_forget(const uint8_t hash[HASH]) {
  struct blob *blob = place_of(hash);
  if (blob == NULL) return;
  kept_bytes -= blob->bytes;
  free(blob->data);
  *blob = (struct blob){{0}, NULL, 0};
}
