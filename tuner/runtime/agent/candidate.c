/* The process of one candidate: fence, load, then calls, checks and times as the host asks for them.
 *
 * Whatever it says is checked by the parent for its form, and by the host for its sense. */
#define _GNU_SOURCE
#include "candidate.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "buffers.h"
#include "fence.h"
#include "frames.h"
#include "pace.h"

enum { SHARE = 64 }; /* an allocation of this part of the memory tells whether that is used up */

typedef const char *(*described)(void);
typedef int (*timed)(const char *, void *const *, int64_t, int64_t, double *);
typedef int (*threaded)(int);
typedef const char *(*explained)(void);
typedef int (*packs)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                     void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                     void *, void *, void *, void *);

static int channel;
static uint64_t memory_bytes;
static void *library;
static struct bind bound;
static timed timer;
static explained reason;
static struct buffer inputs[MAX_CASES][MAX_INPUTS], outputs[MAX_OUTPUTS], packed[MAX_CASES][MAX_PACKED];
static const struct blob *pristine[MAX_CASES][MAX_INPUTS];
static int bound_once;
static uint32_t current; /* the case that was run last */
static double samples[MAX_REPEAT];

static void say(uint32_t type, const void *payload, size_t bytes) {
  if (send_frame(channel, type, payload, bytes, NULL, 0) != 0) _exit(1);
}

/* Ends the process with a reason that the host hears. Safe within a signal handler. */
static noreturn void end(uint32_t how, uint32_t tensor, const char *text) {
  struct ended ended = {how, 0, tensor};
  size_t length = text != NULL ? strnlen(text, MAX_TEXT) : 0;
  send_frame(channel, ENDED, &ended, sizeof ended, text, length);
  _exit(0);
}

static void out_of_memory(void) { end(NO_MEMORY, 0, NULL); }

static void on_fault(int number, siginfo_t *info, void *context) {
  (void)context;
  for (uint32_t i = 0; i < bound.inputs; ++i)
    for (uint32_t of = 0; of < bound.cases; ++of)
      if (buffer_guards(&inputs[of][i], info->si_addr)) end(AT_GUARD, i, NULL);
  for (uint32_t i = 0; i < bound.outputs; ++i)
    if (buffer_guards(&outputs[i], info->si_addr)) end(AT_GUARD, bound.inputs + i, NULL);
  void *probe = mmap(NULL, memory_bytes / SHARE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) out_of_memory();
  raise(number); /* once more, with the default action, which SA_RESETHAND restored */
}

static void watch_faults(void) {
  static char stack[1 << 16];
  sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
}

void keep_to_cores(uint32_t threads) {
  cpu_set_t usable, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  for (int core = CPU_SETSIZE - 1; core >= 0 && threads > 0; --core) {
    if (!CPU_ISSET(core, &usable)) continue;
    CPU_SET(core, &own);
    --threads;
  }
  sched_setaffinity(0, sizeof own, &own);
}

/* A path of the library's content, which lies in memory alone. */
static void put_in_memory(const struct blob *content, char path[64]) {
  int file = memfd_create("candidate", MFD_CLOEXEC);
  if (file < 0 || write_all(file, content->data, content->bytes) != 0) end(NOT_LOADED, 0, "no memory for the library");
  snprintf(path, 64, "/proc/self/fd/%d", file);
}

static void load(const char *path) {
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) end(NOT_LOADED, 0, dlerror());
  described describe = (described)(uintptr_t)dlsym(library, "tuner_library_json");
  const char *text = describe != NULL ? describe() : NULL;
  if (text == NULL) end(NOT_LOADED, 0, "it is no tuned library: it does not describe itself");
  size_t length = strnlen(text, MAX_JSON + 1);
  if (length > MAX_JSON) end(NOT_LOADED, 0, "its description of itself is too long");
  say(OPENED, text, length);
}

static void *symbol(const char name[MAX_NAME]) {
  void *address = dlsym(library, name);
  if (address == NULL) end(NOT_LOADED, 0, dlerror());
  return address;
}

/* Whether a request is one that this process can do; it comes from the host, past the parent's check of its length. */
static int is_sound(const struct bind *asked) {
  if (asked->inputs > MAX_INPUTS || asked->outputs > MAX_OUTPUTS || asked->packed > MAX_PACKED || asked->constants > MAX_INPUTS ||
      asked->passed > MAX_INPUTS + MAX_PACKED || asked->cases < 1 || asked->cases > MAX_CASES || asked->has_rows > 1)
    return 0;
  for (uint32_t i = 0; i < asked->constants; ++i)
    if (asked->constant[i] >= asked->inputs) return 0;
  for (uint32_t i = 0; i < asked->passed; ++i)
    if (asked->pass[i] >= asked->inputs + asked->packed) return 0;
  for (uint32_t i = 0; i < asked->outputs; ++i)
    if (asked->output_bytes[i] > MAX_BLOB) return 0;
  for (uint32_t i = 0; i < asked->packed; ++i)
    if (asked->packed_bytes[i] > MAX_BLOB) return 0;
  const char *names[] = {asked->function, asked->timer, asked->threader, asked->reason, asked->packer};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
    if (strnlen(names[i], MAX_NAME) == MAX_NAME) return 0;
  return 1;
}

static void make(struct buffer *buffer, size_t bytes) {
  if (buffer_make(buffer, bytes) != 0) out_of_memory();
}

/* The packed constants of a case, by the library's own function. */
static void pack(uint32_t of) {
  void *passed[32] = {0};
  uint32_t count = 0;
  for (uint32_t i = 0; i < bound.constants; ++i) passed[count++] = inputs[of][bound.constant[i]].data;
  for (uint32_t i = 0; i < bound.packed; ++i) {
    make(&packed[of][i], bound.packed_bytes[i]);
    passed[count++] = packed[of][i].data;
  }
  packs call = (packs)(uintptr_t)symbol(bound.packer);
  void *const *p = passed;
  int status = call(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15], p[16], p[17],
                    p[18], p[19], p[20], p[21], p[22], p[23], p[24], p[25], p[26], p[27], p[28], p[29], p[30], p[31]);
  if (status != 0) end(NOT_LOADED, 0, reason());
}

static void bind(const struct bind *asked) {
  if (bound_once || !is_sound(asked)) _exit(2);
  bound_once = 1;
  for (uint32_t of = 0; of < asked->cases; ++of)
    for (uint32_t i = 0; i < asked->inputs; ++i)
      if ((pristine[of][i] = blob_find(asked->input[of][i])) == NULL) _exit(2);
  bound = *asked;
  timer = (timed)(uintptr_t)symbol(bound.timer);
  reason = (explained)(uintptr_t)symbol(bound.reason);
  ((threaded)(uintptr_t)symbol(bound.threader))((int)bound.threads);
  for (uint32_t i = 0; i < bound.outputs; ++i) make(&outputs[i], bound.output_bytes[i]);
  for (uint32_t of = 0; of < bound.cases; ++of) {
    for (uint32_t i = 0; i < bound.inputs; ++i) {
      make(&inputs[of][i], pristine[of][i]->bytes);
      if (pristine[of][i]->bytes != 0) memcpy(inputs[of][i].data, pristine[of][i]->data, pristine[of][i]->bytes);
    }
    if (bound.packed != 0) pack(of);
  }
  say(DONE, NULL, 0);
}

/* Calls the function so often; ends the request with its error. */
static int call(void *const *buffers, uint32_t number, uint32_t repeat) {
  int32_t status = timer(bound.function, buffers, number, repeat, samples);
  if (status == 0) return 0;
  const char *text = reason();
  size_t length = text != NULL ? strnlen(text, MAX_TEXT) : 0;
  if (send_frame(channel, STATUS, &status, sizeof status, text, length) != 0) _exit(1);
  return -1;
}

static void run(const struct run *asked) {
  if (!bound_once || asked->of >= bound.cases || asked->number < 1 || asked->number > MAX_NUMBER || asked->repeat < 1 ||
      asked->repeat > MAX_REPEAT)
    _exit(2);
  void *buffers[MAX_INPUTS + MAX_PACKED + MAX_OUTPUTS + 1];
  uint32_t count = 0;
  current = asked->of;
  for (uint32_t i = 0; i < bound.passed; ++i) {
    uint8_t place = bound.pass[i];
    buffers[count++] = place < bound.inputs ? inputs[current][place].data : packed[current][place - bound.inputs].data;
  }
  for (uint32_t i = 0; i < bound.outputs; ++i) {
    if (asked->poison != KEEP) memset(outputs[i].data, (int)asked->poison, outputs[i].bytes);
    buffers[count++] = outputs[i].data;
  }
  if (bound.has_rows) buffers[count++] = (void *)(uintptr_t)bound.rows;
  /* Since the last request the core may have gone to sleep. */
  for (double start = now_s(); asked->settle_us != 0 && (now_s() - start) * 1e6 < (double)asked->settle_us;)
    if (call(buffers, 1, 1) != 0) return;
  if (call(buffers, asked->number, asked->repeat) == 0) say(TIMES, samples, asked->repeat * sizeof samples[0]);
}

static void check(void) {
  struct surroundings found = {AS_IT_WAS, 0, 0};
  for (uint32_t i = 0; i < bound.inputs; ++i) {
    const struct buffer *input = &inputs[current][i];
    size_t place = 0;
    if (input->bytes == 0 || memcmp(input->data, pristine[current][i]->data, input->bytes) == 0) continue;
    while (input->data[place] == pristine[current][i]->data[place]) ++place;
    found = (struct surroundings){INPUT_CHANGED, i, place};
    break;
  }
  for (uint32_t i = 0; found.what == AS_IT_WAS && i < bound.inputs + bound.outputs; ++i) {
    const struct buffer *buffer = i < bound.inputs ? &inputs[current][i] : &outputs[i - bound.inputs];
    found = (struct surroundings){buffer_damage(buffer), i, 0};
  }
  say(SURROUNDINGS, &found, sizeof found);
}

static void hand_back(uint32_t index) {
  if (index >= bound.outputs) _exit(2);
  say(BYTES, outputs[index].data, outputs[index].bytes);
}

static void serve(void) {
  static struct bind request; /* the longest */
  for (;;) {
    struct header header;
    if (read_all(channel, &header, sizeof header) != 0 || header.length > sizeof request) _exit(0);
    if (read_all(channel, &request, header.length) != 0) _exit(0);
    if (header.type == BIND && header.length == sizeof request)
      bind(&request);
    else if (header.type == RUN && header.length == sizeof(struct run))
      run((const struct run *)&request);
    else if (header.type == OUTPUT && header.length == sizeof(uint32_t))
      hand_back(*(const uint32_t *)&request);
    else if (header.type == CHECK && header.length == 0)
      check();
    else if (header.type == PACE && header.length == 0)
      say(SECONDS, &(double){pace_s()}, sizeof(double));
    else
      _exit(2);
  }
}

noreturn void candidate(int pipe, const struct open *request, const struct blob *content, int fences) {
  char path[64];
  memory_bytes = request->memory_bytes;
  if ((channel = leave_descriptors(pipe)) < 0) _exit(3);
  clearenv();
  keep_to_cores(request->threads);
  put_in_memory(content, path);
  if (fence(memory_bytes, (request->deadline_ms / 1000 + 2) * request->threads) != fences) end(NOT_LOADED, 0, "it could not be fenced");
  watch_faults();
  load(path);
  serve();
  _exit(0);
}
