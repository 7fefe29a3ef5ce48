/* The agent: a host asks it over standard input and output to check and time libraries of kernels on this machine.
 *
 * It opens no port and reads no file but what Linux says of the processor. Each library runs in a process of its own, fenced
 * before the library is loaded. The first frame that is malformed or out of order ends it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "blobs.h"
#include "candidate.h"
#include "fence.h"
#include "frames.h"
#include "limits.h"
#include "pace.h"
#include "protocol.h"
#include "scalable_vectors.h"
#include "supervisor.h"

enum { FENCED = 64, PACE_MS = 2000, MOST_THREADS = 1024, MOST_LIMITS_MS = 10 * 1000, LIMITS_PATIENCE = 12 };
enum { MOST_DEADLINE_MS = 4 * 3600 * 1000 }; /* a race allows three times what a trial may take, which is an hour at most */

static int to_host;
static int greeted;

static int refuse(uint32_t why) {
  send_frame(to_host, REFUSED, &why, sizeof why, NULL, 0);
  return -1;
}

static int done(void) { return send_frame(to_host, DONE, NULL, 0, NULL, 0); }

/* What fences a process of this system gets, tried in one. -1 where it cannot be fenced. */
static int fences(void) {
  int status = 0;
  pid_t tried = fork();
  if (tried < 0) return -1;
  if (tried == 0) {
    int in_force = fence((uint64_t)1 << 32, 10);
    _exit(in_force < 0 ? 0 : FENCED | in_force);
  }
  if (waitpid(tried, &status, 0) != tried || !WIFEXITED(status) || !(WEXITSTATUS(status) & FENCED)) return -1;
  return WEXITSTATUS(status) & ~FENCED;
}

/* What tells the kind of core: read on the core that candidates run on. */
static uint64_t identity(const cpu_set_t *usable) {
  uint64_t known = 0;
  keep_to_cores(1);
#if defined(__aarch64__)
  /* Linux lets programs read the register where it says so: HWCAP_CPUID. */
  if (getauxval(AT_HWCAP) >> 11 & 1) __asm__("mrs %0, MIDR_EL1" : "=r"(known));
#elif defined(__x86_64__)
  unsigned a = 0, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d)) known = a;
#endif
  sched_setaffinity(0, sizeof *usable, usable);
  return known;
}

/* What the core has, as Linux tells programs; on x86-64 CPUID's leaf 1, ecx, and leaf 7, ebx, in one word, and in the other XCR0,
 * of which only the low half is in use: registers that the system saves. */
static void read_features(struct device *device) {
#if defined(__x86_64__)
  unsigned a, b, c, d, saved = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return;
  device->hwcap = c;
  if (c & bit_OSXSAVE) __asm__ volatile("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
  device->hwcap2 = saved;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) device->hwcap |= (uint64_t)b << 32;
#else
  device->hwcap = getauxval(AT_HWCAP);
  device->hwcap2 = getauxval(AT_HWCAP2);
#endif
}

#if defined(__riscv)
static void on_illegal(int number) {
  (void)number;
  _exit(0);
}

/* Bytes of a vector; 0 where the core or its system lacks version 1.0 of the extension. A process tries it, by an instruction
 * that compilers without the extension do not know: vsetvli rd, zero, e32, m1, ta, ma. Drafts of it answer with 0. */
static uint64_t vector_length(void) {
  int status = 0;
  pid_t tried = fork();
  if (tried == 0) {
    unsigned long lanes = 0;
    signal(SIGILL, on_illegal);
    __asm__ volatile(".insn i 0x57, 7, %0, x0, 0xd0" : "=r"(lanes));
    _exit(lanes != 0 ? 1 + __builtin_ctzl(lanes) : 0);
  }
  if (tried < 0 || waitpid(tried, &status, 0) != tried || !WIFEXITED(status) || WEXITSTATUS(status) == 0) return 0;
  return (uint64_t)4 << (WEXITSTATUS(status) - 1);
}
#else
static uint64_t vector_length(void) { return tuner_vector_length(); }
#endif

/* The machine's name, if it is one that a host takes: letters and digits, and ._- behind the first. Linux' own is "(none)". */
static void name_host(char host[64]) {
  gethostname(host, 63);
  for (size_t i = 0; host[i] != '\0'; ++i)
    if (!isalnum((unsigned char)host[i]) && (i == 0 || strchr("._-", host[i]) == NULL)) host[0] = '\0';
  if (host[0] == '\0') strcpy(host, "unnamed");
}

static int introduce(const struct hello *hello, int in_force) {
  if (hello->version != PROTOCOL_VERSION) return refuse(BAD_VERSION);
  cpu_set_t usable;
  CPU_ZERO(&usable);
  sched_getaffinity(0, sizeof usable, &usable);
  struct device device = {.version = PROTOCOL_VERSION, .cores = (uint32_t)CPU_COUNT(&usable), .fence = (uint32_t)in_force};
#if defined(__x86_64__)
  device.architecture = 62;
#elif defined(__aarch64__)
  device.architecture = 183;
#else
  device.architecture = 243;
#endif
  device.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  device.identity = identity(&usable);
  read_features(&device);
  device.vector_bytes = vector_length();
  name_host(device.host);
  blobs_limit(device.memory_bytes / 4);
  greeted = 1;
  return send_frame(to_host, DEVICE, &device, sizeof device, NULL, 0);
}

/* A blob's content is read after its hash, into memory that is asked for once there is room. */
static int take_blob(uint32_t length) {
  uint8_t hash[HASH];
  if (length < HASH || length - HASH > MAX_BLOB) return refuse(BAD_FRAME);
  if (read_all(0, hash, HASH) != 0) return -1;
  size_t bytes = length - HASH;
  uint8_t *room = blob_room(bytes);
  if (room == NULL) return refuse(NO_ROOM);
  if (read_all(0, room, bytes) != 0) {
    free(room);
    return -1;
  }
  return blob_keep(hash, room, bytes) == 0 ? done() : refuse(BAD_HASH);
}

static int open_library(const struct open *asked) {
  const struct blob *library = blob_find(asked->library);
  if (library == NULL || supervised()) return refuse(OUT_OF_ORDER);
  if (asked->deadline_ms > MOST_DEADLINE_MS || asked->threads < 1 || asked->threads > MOST_THREADS) return refuse(BAD_FRAME);
  return supervise_open(asked, library);
}

static void read_pace(int to, const void *request) {
  (void)request;
  double seconds = pace_s();
  send_frame(to, SECONDS, &seconds, sizeof seconds, NULL, 0);
}

/* In a process of its own, which the host's patience ends and not the device. */
static void answer_limits(int to, const void *request) {
  const struct measure *asked = request;
  double fma[2], rows[LIMIT_ROWS][4];
  keep_to_cores(1);
  int made = tuner_limits((double)asked->milliseconds / 1e3, asked->most_bytes, fma, rows, LIMIT_ROWS);
  send_frame(to, LIMITS, fma, made > 0 ? sizeof fma : 0, rows, (size_t)made * sizeof rows[0]);
}

static int measure_limits(const struct measure *asked) {
  if (supervised()) return refuse(OUT_OF_ORDER);
  if (asked->milliseconds > MOST_LIMITS_MS) return refuse(BAD_FRAME);
  size_t most = (2 + 4 * LIMIT_ROWS) * sizeof(double);
  return supervise_own(LIMITS, most, LIMITS_PATIENCE * MOST_LIMITS_MS, answer_limits, asked);
}

/* The exact length of each request but BLOB; -1: there is no such request. */
static long length_of(uint32_t type) {
  switch (type) {
    case HELLO: return sizeof(struct hello);
    case FORGET: return HASH;
    case OPEN: return sizeof(struct open);
    case BIND: return sizeof(struct bind);
    case RUN: return sizeof(struct run);
    case OUTPUT: return sizeof(uint32_t);
    case CHECK: case PACE: case CLOSE: return 0;
    case MEASURE: return sizeof(struct measure);
    default: return -1;
  }
}

/* Answers one request. -1 ends the agent. */
static int answer(uint32_t type, const void *payload, size_t bytes, int in_force) {
  if (type == HELLO) return greeted ? refuse(OUT_OF_ORDER) : introduce(payload, in_force);
  if (!greeted) return refuse(OUT_OF_ORDER);
  switch (type) {
    case FORGET:
      blob_forget(payload);
      return done();
    case OPEN:
      return open_library(payload);
    case CLOSE:
      supervise_close();
      return done();
    case MEASURE:
      return measure_limits(payload);
    case PACE:
      if (!supervised()) return supervise_own(SECONDS, sizeof(double), PACE_MS, read_pace, NULL);
      return supervise(type, payload, bytes);
    default:
      return supervised() ? supervise(type, payload, bytes) : refuse(OUT_OF_ORDER);
  }
}

static void serve(int in_force) {
  static _Alignas(8) uint8_t payload[sizeof(struct bind)]; /* the longest */
  for (;;) {
    struct header header;
    if (read_all(0, &header, sizeof header) != 0) return;
    if (header.type == BLOB) {
      if (!greeted) refuse(OUT_OF_ORDER);
      if (!greeted || take_blob(header.length) != 0) return;
      continue;
    }
    if (length_of(header.type) < 0 || header.length != (size_t)length_of(header.type)) {
      refuse(BAD_FRAME);
      return;
    }
    if (read_all(0, payload, header.length) != 0 || answer(header.type, payload, header.length, in_force) != 0) return;
  }
}

int main(int words, char **word) {
  if (words != 1 || isatty(0)) {
    fprintf(stderr,
            "%s: checks and times kernels on this machine for the tuner that started it.\n"
            "It has no options and speaks on standard input and output: tuner tune SPEC --target cpu:NAME --device \"ssh HOST %s\"\n",
            word[0], word[0]);
    return 2;
  }
  to_host = dup(1);
  if (to_host < 0 || dup2(2, 1) < 0) return 1; /* whatever prints must not break the framing */
  signal(SIGPIPE, SIG_IGN);
  int in_force = fences();
  if (in_force < 0) {
    refuse(NO_FENCE);
    return 1;
  }
  supervisor_init(0, to_host, in_force);
  serve(in_force);
  supervise_close();
  return 0;
}
