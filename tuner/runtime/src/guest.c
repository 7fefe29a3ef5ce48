/* Calls a function of a stranger in rounds, as often as another process asks over shared memory.
 *
 * That process holds the clock and the right answers; nothing here is trusted. Compiled with TUNER_CALL(function, buffers), which
 * calls a function on its number of buffers. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define STOP UINT32_MAX

/* tuner/measure/foreign/arena.py has the same offsets. */
struct control {
  _Alignas(64) _Atomic uint32_t go;   /* number of the round to play */
  _Alignas(64) _Atomic uint32_t done; /* number of the last round that ended; 1 once the guest is ready */
  _Alignas(64) volatile uint32_t count; /* calls in the round, or STOP */
  volatile int32_t status;            /* of the first call that failed */
  volatile uint32_t failed;           /* calls before that */
  volatile uint32_t state_changed;    /* whether the kernel left other floating-point modes */
};

#if defined(__x86_64__)
static uint64_t modes(void) {
  uint16_t control;
  __asm__ volatile("fnstcw %0" : "=m"(control));
  return (uint64_t)(__builtin_ia32_stmxcsr() & 0xFFC0u) | (uint64_t)control << 32; /* without the flags of exceptions */
}
static void set_modes(uint64_t before) {
  uint16_t control = (uint16_t)(before >> 32);
  __asm__ volatile("fldcw %0" : : "m"(control));
  __builtin_ia32_ldmxcsr((uint32_t)before);
}
#elif defined(__aarch64__)
static uint64_t modes(void) {
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
static void set_modes(uint64_t before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#else
static uint64_t modes(void) { return 0; }
static void set_modes(uint64_t before) { (void)before; }
#endif

static void wait_while(_Atomic uint32_t *word, uint32_t value) {
  while (atomic_load(word) == value) syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void announce(_Atomic uint32_t *word, uint32_t value) {
  atomic_store(word, value);
  syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Plays rounds until one asks for STOP calls. `buffers`: those of each slot after the other, `arguments` in each. */
EXPORT void tuner_guest_serve(void *function, void *const *buffers, uint32_t arguments, struct control *control) {
  uint64_t before = modes();
  uint32_t round = atomic_load(&control->go);
  announce(&control->done, 1);
  for (;;) {
    wait_while(&control->go, round);
    round = atomic_load(&control->go);
    uint32_t count = control->count;
    if (count == STOP) return;
    int status = 0;
    uint32_t slot = 0;
    for (; slot < count && status == 0; ++slot) status = TUNER_CALL(function, (buffers + (size_t)slot * arguments));
    control->status = status;
    control->failed = slot;
    if (modes() != before) {
      control->state_changed = 1;
      set_modes(before);
    }
    announce(&control->done, round);
  }
}
