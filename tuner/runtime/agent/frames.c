/* Whole frames over descriptors. */
#include "frames.h"

#include <errno.h>
#include <unistd.h>

#include "protocol.h"

int read_all(int from, void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t part = read(from, (char *)data + done, bytes - done);
    if (part == 0 || (part < 0 && errno != EINTR)) return -1;
    if (part > 0) done += (size_t)part;
  }
  return 0;
}

int write_all(int to, const void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t part = write(to, (const char *)data + done, bytes - done);
    if (part < 0 && errno != EINTR) return -1;
    if (part > 0) done += (size_t)part;
  }
  return 0;
}

int send_frame(int to, uint32_t type, const void *first, size_t first_bytes, const void *second, size_t second_bytes) {
  struct header header = {type, (uint32_t)(first_bytes + second_bytes)};
  if (write_all(to, &header, sizeof header) != 0) return -1;
  if (first_bytes != 0 && write_all(to, first, first_bytes) != 0) return -1;
  return second_bytes == 0 ? 0 : write_all(to, second, second_bytes);
}
