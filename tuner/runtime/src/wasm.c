/* The runtime inside a module of WebAssembly, which has no C library and one thread: errors, memory and parallel loops, in the place
 * of error.c, workspace.c and threads.c. Nothing is imported but functions of mathematics that a kernel calls. */
#include <stdarg.h>
#include <string.h>

#include "call.h"
#include "cpu_features.h"
#include "tuner_runtime.h"

/* What compilers call for long copies. Of bulk memory each is one instruction. */
void *memcpy(void *to, const void *from, size_t nbytes) { return __builtin_memcpy(to, from, nbytes); }
void *memmove(void *to, const void *from, size_t nbytes) { return __builtin_memmove(to, from, nbytes); }
void *memset(void *to, int byte, size_t nbytes) { return __builtin_memset(to, byte, nbytes); }

static char error_text[1024];
static size_t error_length;
static int error_status;

const char *tuner_last_error(void) { return error_text; }

int tuner_last_status(void) { return error_status; }

void tuner_clear_status(void) { error_status = TUNER_OK; }

static void append(const char *text) {
  while (*text != '\0' && error_length + 1 < sizeof error_text) error_text[error_length++] = *text++;
  error_text[error_length] = '\0';
}

static void append_number(uint64_t value, unsigned base) {
  char digits[21], *first = digits + sizeof digits - 1;
  *first = '\0';
  do {
    *--first = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  append(first);
}

/* Of printf's conversions those that the runtime's messages have: s, p, and d and u alone, with ll or with z. */
int tuner_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  error_length = 0;
  for (const char *place = format; *place != '\0'; ++place) {
    const char letter[2] = {*place, '\0'};
    if (*place != '%') {
      append(letter);
      continue;
    }
    int longs = 0;
    for (++place; *place == 'l' || *place == 'z'; ++place) longs += *place == 'l';
    if (*place == 's') {
      append(va_arg(arguments, const char *));
    } else if (*place == 'p') {
      append("0x");
      append_number((uintptr_t)va_arg(arguments, void *), 16);
    } else if (*place == 'u') {
      append_number(longs == 2 ? va_arg(arguments, unsigned long long) : va_arg(arguments, unsigned), 10);
    } else {
      const int64_t value = longs == 2 ? va_arg(arguments, long long) : va_arg(arguments, int);
      if (value < 0) append("-");
      append_number(value < 0 ? -(uint64_t)value : (uint64_t)value, 10);
    }
  }
  va_end(arguments);
  error_status = status;
  return status;
}

/* Called by generated code before it returns -1: an argument is not what it was compiled for, or an assertion in it failed. */
TUNER_HIDDEN void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  tuner_fail(TUNER_ERROR_INTERNAL, "%s: ", kind);
  for (int32_t i = 0; i < count; ++i) {
    if (parts[i] != NULL) append(parts[i]);
  }
}

/* Before each block, in one aligned line of its own. */
struct block {
  struct block *next;
  size_t nbytes; /* after the line, a multiple of lines */
};

enum { PAGE = 65536, LINE = TUNER_ALIGNMENT }; /* memory grows by pages */

static struct block *unused; /* by growing address; no two of them touch */

static char *end_of(struct block *block) { return (char *)block + LINE + block->nbytes; }

/* Makes one block of this and the next, where they touch. */
static void join(struct block *block) {
  struct block *next = block->next;
  if (next == NULL || end_of(block) != (char *)next) return;
  block->nbytes += LINE + next->nbytes;
  block->next = next->next;
}

static void give_back_block(struct block *block) {
  struct block *before = NULL, *after = unused;
  for (; after != NULL && after < block; after = after->next) before = after;
  block->next = after;
  *(before == NULL ? &unused : &before->next) = block;
  join(block);
  if (before != NULL) join(before);
}

/* Whether there was room for a block of so many bytes, and as many pages were added. */
static int grow(size_t nbytes) {
  const size_t pages = (nbytes + LINE + PAGE - 1) / PAGE, before = __builtin_wasm_memory_grow(0, pages);
  if (before == SIZE_MAX) return 0;
  struct block *block = (struct block *)(before * PAGE);
  block->nbytes = pages * PAGE - LINE;
  give_back_block(block);
  return 1;
}

/* The first block that is long enough; what is left of it stays unused. */
static void *take(uint64_t asked) {
  if (asked > SIZE_MAX - 2 * PAGE) return NULL;
  const size_t nbytes = asked == 0 ? LINE : ((size_t)asked + LINE - 1) / LINE * LINE;
  for (;;) {
    for (struct block **link = &unused; *link != NULL; link = &(*link)->next) {
      struct block *block = *link;
      if (block->nbytes < nbytes) continue;
      if (block->nbytes == nbytes) {
        *link = block->next;
      } else {
        struct block *rest = (struct block *)((char *)block + LINE + nbytes);
        rest->nbytes = block->nbytes - nbytes - LINE;
        rest->next = block->next;
        block->nbytes = nbytes;
        *link = rest;
      }
      return (char *)block + LINE;
    }
    if (!grow(nbytes)) return NULL;
  }
}

void *tuner_alloc(size_t nbytes) {
  void *memory = take(nbytes);
  if (memory == NULL) tuner_fail(TUNER_ERROR_MEMORY, "no memory for a buffer of %zu bytes", nbytes);
  return memory;
}

void tuner_free(void *memory) {
  if (memory != NULL) give_back_block((struct block *)((char *)memory - LINE));
}

static void *allocate(int device_type, int device_id, uint64_t nbytes, int code_hint, int bits_hint) {
  (void)device_type, (void)device_id, (void)code_hint, (void)bits_hint;
  void *memory = take(nbytes);
  if (memory == NULL) tuner_fail(TUNER_ERROR_MEMORY, "no memory for a workspace of %llu bytes", (unsigned long long)nbytes);
  return memory;
}

static int give_back(int device_type, int device_id, void *memory) {
  (void)device_type, (void)device_id;
  tuner_free(memory);
  return 0;
}

/* The tasks of a parallel loop one after the other. */
static int launch(TunerTask task, void *closure, int num_task) {
  TunerParallelEnv env = {NULL, num_task > 0 ? num_task : 1};
  for (int id = 0; id < env.num_task; ++id) {
    if (task(id, &env, closure) != 0) return -1;
  }
  return 0;
}

static int no_barrier(int task_id, TunerParallelEnv *env) {
  (void)task_id, (void)env;
  tuner_fail(TUNER_ERROR_INTERNAL, "barriers inside parallel loops are not supported");
  return -1;
}

void tuner_begin_call(int tuned) { (void)tuned; }

void tuner_run_shares(TunerTask share, void *closure) { launch(share, closure, 0); }

/* Generated code calls through these; it brings weak definitions of its own that are null. */
TUNER_HIDDEN void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
TUNER_HIDDEN int (*__TVMBackendFreeWorkspace)(int, int, void *) = give_back;
TUNER_HIDDEN int (*__TVMBackendParallelLaunch)(TunerTask, void *, int) = launch;
TUNER_HIDDEN int (*__TVMBackendParallelBarrier)(int, TunerParallelEnv *) = no_barrier;

/* An engine that lacks an instruction of a module does not load it. */
const struct tuner_function *tuner_supported(const struct tuner_function *function) { return function; }

int tuner_call(const struct tuner_function *function, void *const *buffers) { return tuner_call_kernel(function, buffers); }
