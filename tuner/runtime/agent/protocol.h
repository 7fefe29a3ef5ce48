/* What the agent and its host say to each other: frames of a length, a type and a payload, all little-endian.
 *
 * The host asks and the agent answers, one request at a time. The parent answers what is of the device; what is of a candidate
 * it hands to the candidate's process, and checks the answer's type and length before it passes it on. */
#ifndef TUNER_AGENT_PROTOCOL_H
#define TUNER_AGENT_PROTOCOL_H

#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little-endian"
#endif

enum {
  PROTOCOL_VERSION = 3,
  MAX_INPUTS = 16,
  MAX_OUTPUTS = 16,
  MAX_PACKED = 16,
  MAX_CASES = 8,
  MAX_NAME = 256,      /* bytes of a symbol with its end */
  MAX_TEXT = 1024,     /* bytes of a message */
  MAX_REPEAT = 4096,   /* samples of one request */
  MAX_NUMBER = 1 << 24, /* calls of one sample */
  MAX_JSON = 1 << 20,  /* bytes of a library's description of itself */
  MAX_BLOB = 1 << 28,  /* bytes of a library or a tensor */
  MAX_BLOBS = 256,
  HASH = 32, /* bytes of a SHA-256 */
  KEEP = 256 /* instead of a poison: outputs stay as they are */
};

enum request {
  HELLO = 1,   /* struct hello */
  BLOB = 2,    /* hash, content: to be kept */
  FORGET = 3,  /* hash */
  OPEN = 4,    /* struct open: a process loads a library */
  BIND = 5,    /* struct bind: a function of it, and its buffers */
  RUN = 6,     /* struct run: calls of it */
  OUTPUT = 7,  /* uint32: the bytes of an output */
  CHECK = 8,   /* inputs and surroundings are looked at */
  PACE = 9,    /* the calibration kernel is timed, by the candidate's process where there is one */
  CLOSE = 10,  /* the candidate's process ends */
  MEASURE = 11 /* struct measure: the core's own limits */
};

enum answer {
  DEVICE = 64,       /* struct device */
  DONE = 65,
  OPENED = 66,       /* the library's JSON */
  TIMES = 67,        /* doubles: seconds of one call, a sample each */
  STATUS = 68,       /* int32 and a text: the function failed */
  BYTES = 69,
  SURROUNDINGS = 70, /* struct surroundings */
  SECONDS = 71,      /* double */
  LIMITS = 72,       /* doubles */
  ENDED = 73,        /* struct ended and a text: the candidate's process is gone */
  BEAT = 74,         /* still at it */
  REFUSED = 75       /* uint32, enum refusal: the agent ends */
};

enum refusal { BAD_FRAME = 1, BAD_VERSION = 2, BAD_HASH = 3, OUT_OF_ORDER = 4, NO_ROOM = 5, NO_FENCE = 6 };

/* Why a candidate's process is gone. Only it can say 4 to 6. */
enum end { BY_EXIT = 1, BY_SIGNAL = 2, BY_DEADLINE = 3, AT_GUARD = 4, NO_MEMORY = 5, NOT_LOADED = 6, BROKE_PROTOCOL = 7 };

enum around { AS_IT_WAS = 0, INPUT_CHANGED = 1, BEFORE_BUFFER = 2, BEHIND_BUFFER = 3 };

enum fence { FENCE_CALLS = 1, FENCE_FILES = 2, FENCE_PRIVILEGES = 4 };

struct header {
  uint32_t type, length;
};

struct hello {
  uint32_t version;
};

struct device {
  uint32_t version, architecture; /* the ELF machine */
  uint32_t cores, fence;          /* cores the agent may use; enum fence, what its children have */
  uint64_t memory_bytes;
  uint64_t identity; /* MIDR_EL1, or CPUID's signature; 0 where neither is readable */
  uint64_t hwcap, hwcap2; /* of the auxiliary vector; on x86-64 words of CPUID, and XCR0 */
  uint64_t vector_bytes; /* of its scalable vectors, SVE's or RISC-V's; 0 where there are none */
  char host[64];
};

struct open {
  uint8_t library[HASH];
  uint32_t deadline_ms; /* of the process, while it works */
  uint32_t threads;     /* so many cores are its own */
  uint64_t memory_bytes;
};

struct bind {
  uint32_t inputs, outputs, packed, constants, passed, cases, has_rows, threads;
  int64_t rows;
  uint64_t output_bytes[MAX_OUTPUTS], packed_bytes[MAX_PACKED];
  uint8_t constant[MAX_INPUTS];          /* inputs that the packer takes */
  uint8_t pass[MAX_INPUTS + MAX_PACKED]; /* of inputs, then packed buffers: what the function takes */
  char function[MAX_NAME], timer[MAX_NAME], threader[MAX_NAME], reason[MAX_NAME], packer[MAX_NAME];
  uint8_t input[MAX_CASES][MAX_INPUTS][HASH];
};

struct run {
  uint32_t of, poison; /* the case; the byte that outputs are filled with before, or KEEP */
  uint32_t number, repeat;
  uint32_t settle_us; /* of calls before, which do not count */
};

struct measure {
  uint32_t milliseconds;
  uint32_t reserved;
  uint64_t most_bytes;
};

struct surroundings {
  uint32_t what, tensor; /* enum around; inputs are counted first */
  uint64_t offset;       /* of the first byte of an input that changed */
};

struct ended {
  uint32_t how;
  int32_t code; /* exit status or signal */
  uint32_t tensor; /* whose guard page it was */
};

_Static_assert(sizeof(struct bind) == 5720 && sizeof(struct device) == 120 && sizeof(struct open) == 48 && sizeof(struct run) == 20,
               "structs are as they travel");

#endif
