/* What the double of the driver writes into a CUtensorMap, and that of a device reads there. */
#pragma once
#include <cstdint>

struct emu_tensor_map {
  uint64_t address;
  uint64_t strides[5];  /* bytes; that of the first dimension is an element */
  uint32_t extents[5];  /* elements, innermost first */
  uint16_t box[5];      /* elements that are copied */
  uint8_t steps[5];     /* from one of them to the next */
  uint8_t rank, itemsize, rounds; /* rounds float32 to tf32 as it is copied */
};
static_assert(sizeof(emu_tensor_map) <= 128);
