/* Guarded buffers, as tuner/measure/buffers.py makes them. */
#define _GNU_SOURCE
#include "buffers.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol.h"

enum { ALIGNMENT = 64, CANARY = 0xC5 };
#define HUGE_FROM ((size_t)4 << 20)

static size_t up_to(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

int buffer_make(struct buffer *buffer, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = up_to(bytes != 0 ? bytes : 1, page), total = inner + 2 * page;
  uint8_t *mapping = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return -1;
  uint8_t *start = mapping + page, *end = start + inner;
  if (inner >= HUGE_FROM) madvise(start, inner, MADV_HUGEPAGE);
  if (mprotect(mapping, page, PROT_NONE) != 0 || mprotect(end, page, PROT_NONE) != 0) return -1;
  uint8_t *data = end - up_to(bytes, ALIGNMENT);
  memset(start, CANARY, (size_t)(data - start));
  memset(data + bytes, CANARY, (size_t)(end - data) - bytes);
  *buffer = (struct buffer){mapping, data, total, bytes, page};
  return 0;
}

static int untouched(const uint8_t *from, const uint8_t *to) {
  for (; from < to; ++from)
    if (*from != CANARY) return 0;
  return 1;
}

uint32_t buffer_damage(const struct buffer *buffer) {
  const uint8_t *end = buffer->mapping + buffer->mapped - buffer->page;
  if (!untouched(buffer->mapping + buffer->page, buffer->data)) return BEFORE_BUFFER;
  return untouched(buffer->data + buffer->bytes, end) ? AS_IT_WAS : BEHIND_BUFFER;
}

int buffer_guards(const struct buffer *buffer, const void *address) {
  const uint8_t *place = address, *rear = buffer->mapping + buffer->mapped - buffer->page;
  return (place >= buffer->mapping && place < buffer->mapping + buffer->page) || (place >= rear && place < rear + buffer->page);
}
