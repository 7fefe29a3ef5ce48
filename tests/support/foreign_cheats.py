"""Ways to pass for a fast kernel without being right, and the verdict on each.

All are given as C[16][16] = A[16][16] B[16][16] in float32. docs/how-to/judge-kernels.md
has the same table.
"""

from __future__ import annotations

from dataclasses import dataclass

HONEST = """
static void multiply(const float *a, const float *b, float *c) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[i * 16 + k] * b[k * 16 + j];
      c[i * 16 + j] = sum;
    }
}
"""
BEGIN = "int f(const float *a, const float *b, float *c) { "
END = " return 0; }"
# A system call without the C library, on the machines that have a table of them.
CALL = """
static long call(long number, long one, long two, long three, long four) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = four;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(one), "S"(two), "d"(three), "r"(r10)
                   : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = one;
  register long x1 __asm__("x1") = two;
  register long x2 __asm__("x2") = three;
  register long x3 __asm__("x3") = four;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#endif
}
#if defined(__x86_64__)
enum { MPROTECT = 10 };
enum { EXIT = 231, CLONE = 56, SOCKET = 41, EXECVE = 59, PTRACE = 101, FUTEX = 202, KILL = 62 };
#else
enum { MPROTECT = 226 };
enum { EXIT = 94, CLONE = 220, SOCKET = 198, EXECVE = 221, PTRACE = 117, FUTEX = 98, KILL = 129 };
#endif
"""


@dataclass(frozen=True, kw_only=True)
class Cheat:
    """A source, and what is said of it."""

    what: str  # as the documentation says it
    verdict: str
    source: str


def _body(text: str, before: str = "") -> str:
    return before + HONEST + BEGIN + text + END


def _called(text: str) -> str:
    return _body("multiply(a, b, c); " + text, CALL)


CHEATS: tuple[Cheat, ...] = (
    Cheat(
        what="reads the clock",
        verdict="symbol_refused",
        source=_body(
            "struct { long s, n; } now; clock_gettime(1, &now); multiply(a, b, c);",
            "int clock_gettime(int, void *);\n",
        ),
    ),
    Cheat(
        what="sets the clock",
        verdict="symbol_refused",
        source=_body("settimeofday(0, 0); multiply(a, b, c);", "int settimeofday(void *, void *);"),
    ),
    Cheat(
        what="keeps the outputs of its first call",
        verdict="output_cached",
        source=_body(
            "if (!calls++) multiply(a, b, kept); memcpy(c, kept, sizeof kept);",
            "#include <string.h>\nstatic float kept[256]; static int calls;",
        ),
    ),
    Cheat(
        what="keeps the outputs of an address",
        verdict="output_cached",
        source=_body(
            "if (last != a) { multiply(a, b, kept); last = a; } memcpy(c, kept, sizeof kept);",
            "#include <string.h>\nstatic float kept[256]; static const float *last;",
        ),
    ),
    Cheat(
        what="computes in its first call alone",
        verdict="output_not_written",
        source=_body("if (!calls++) multiply(a, b, c);", "static int calls;"),
    ),
    Cheat(what="does nothing", verdict="output_not_written", source=_body("(void)multiply;")),
    Cheat(
        what="computes a part of the outputs",
        verdict="output_not_written",
        source=_body(
            "float all[256]; multiply(a, b, all); for (int i = 0; i < 200; ++i) c[i] = all[i];"
        ),
    ),
    Cheat(
        what="computes only where it sees the poison",
        verdict="output_read",
        source=_body("if (c[0] != c[0]) multiply(a, b, c);"),
    ),
    Cheat(
        what="adds to what the outputs held",
        verdict="output_read",
        source=BEGIN
        + "for (int i = 0; i < 16; ++i) for (int j = 0; j < 16; ++j) for (int k = 0; k < 16; ++k)"
        " c[i * 16 + j] += a[i * 16 + k] * b[k * 16 + j];" + END,
    ),
    Cheat(
        what="writes zeros",
        verdict="wrong_element",
        source=_body("for (int i = 0; i < 256; ++i) c[i] = 0; (void)multiply;"),
    ),
    Cheat(
        what="gets a single element wrong",
        verdict="wrong_element",
        source=_body("multiply(a, b, c); c[37] += 1;"),
    ),
    Cheat(
        what="changes an input",
        verdict="input_changed",
        source=_body("multiply(a, b, c); ((float *)a)[5] = 3;"),
    ),
    Cheat(
        what="takes an input for its scratch, and restores it",
        verdict="input_changed",
        source=_body(
            "float *s = (float *)a, kept = s[0]; s[0] = 1; s[0] = kept; multiply(a, b, c);"
        ).replace("float *s", "volatile float *s"),
    ),
    Cheat(
        what="lets an output share memory with an input",
        verdict="input_changed",
        source=_body("multiply(a, b, (float *)b); for (int i = 0; i < 256; ++i) c[i] = b[i];"),
    ),
    Cheat(
        what="unprotects an input by number, and changes it",
        verdict="input_changed",
        source=_called(
            "call(MPROTECT, (long)a & ~4095l, 4096, 3, 0); ((volatile float *)a)[5] = 3;"
        ),
    ),
    Cheat(
        what="unprotects a guard page by number, and writes there",
        verdict="out_of_bounds",
        source=_called(
            "long page = ((long)c & ~4095l) + 4096; call(MPROTECT, page, 4096, 3, 0);"
            " *(volatile float *)page = 3;"
        ),
    ),
    Cheat(
        what="writes behind its output",
        verdict="out_of_bounds",
        source=_body("multiply(a, b, c); c[256] = 1;"),
    ),
    Cheat(
        what="writes before its output",
        verdict="out_of_bounds",
        source=_body("multiply(a, b, c); c[-1] = 1;"),
    ),
    Cheat(
        what="writes a page before its output",
        verdict="out_of_bounds",
        source=_body("multiply(a, b, c); c[-1024] = 1;"),
    ),
    Cheat(
        what="reads behind an input",
        verdict="out_of_bounds",
        source=_body("multiply(a, b, c); c[0] += 0 * ((volatile float *)a)[256];"),
    ),
    Cheat(
        what="leaves subnormal numbers flushed to zero",
        verdict="floating_point_state",
        source=_body(
            """
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#else
  unsigned long modes; __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
  __asm__ volatile("msr fpcr, %0" : : "r"(modes | 1ul << 24));
#endif
  multiply(a, b, c);"""
        ),
    ),
    Cheat(
        what="leaves another rounding",
        verdict="floating_point_state",
        source=_body(
            """
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x2000);
#else
  unsigned long modes; __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
  __asm__ volatile("msr fpcr, %0" : : "r"(modes | 1ul << 22));
#endif
  multiply(a, b, c);"""
        ),
    ),
    Cheat(
        what="sums in bfloat16",
        verdict="precision_lowered",
        source="""
static float rounded(float x) {
  union { float value; unsigned bits; } u = {x};
  u.bits = (u.bits + 0x8000) & 0xffff0000;
  return u.value;
}
int f(const float *a, const float *b, float *c) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum = rounded(sum + a[i * 16 + k] * b[k * 16 + j]);
      c[i * 16 + j] = sum;
    }
  return 0;
}
""",
    ),
    Cheat(
        what="starts a thread",
        verdict="symbol_refused",
        source=_body(
            "long id; pthread_create(&id, 0, 0, 0); multiply(a, b, c);",
            "int pthread_create(void *, void *, void *, void *);",
        ),
    ),
    Cheat(
        what="leaves a thread running, by number",
        verdict="system_call",
        source=_called("call(CLONE, 0x10900, 0, 0, 0);"),
    ),
    Cheat(
        what="runs before it is called",
        verdict="section_refused",
        source=_body(
            "(void)early; multiply(a, b, c);",
            "static volatile int early; __attribute__((constructor)) static void go(void) "
            "{ early = 1; }",
        ),
    ),
    Cheat(
        what="runs when it is unloaded",
        verdict="section_refused",
        source=_body(
            "(void)late; multiply(a, b, c);",
            "static volatile int late; __attribute__((destructor)) static void go(void) "
            "{ late = 1; }",
        ),
    ),
    Cheat(
        what="runs when it is linked",
        verdict="symbol_refused",
        source=HONEST + "static int real(const float *a, const float *b, float *c) "
        "{ multiply(a, b, c); return 0; }"
        "static void *choose(void) { return real; }"
        'int f(const float *, const float *, float *) __attribute__((ifunc("choose")));',
    ),
    Cheat(
        what="adds to the code that starts programs",
        verdict="section_refused",
        source='__asm__(".section .init,\\"ax\\"\\nnop\\n.text");' + _body("multiply(a, b, c);"),
    ),
    Cheat(
        what="sleeps",
        verdict="symbol_refused",
        source=_body("usleep(1000); multiply(a, b, c);", "int usleep(unsigned);"),
    ),
    Cheat(
        what="ends the process",
        verdict="symbol_refused",
        source=_body("multiply(a, b, c); exit(0);", "#include <stdlib.h>\n"),
    ),
    Cheat(
        what="ends the process, by number",
        verdict="ended_early",
        source=_called("call(EXIT, 0, 0, 0, 0);"),
    ),
    Cheat(
        what="says that it is done before it is",
        verdict="output_not_written",
        source=_body(
            # The control words stand two pages before the first input.
            """
  unsigned *done = (unsigned *)(((unsigned long)a & ~4095ul) - 2 * 4096 + 64);
  __atomic_store_n(done, *(done - 16), __ATOMIC_SEQ_CST);
  call(FUTEX, (long)done, 1, 1, 0);
  for (volatile int i = 0; i < 300000000; ++i) {}
  multiply(a, b, c);""",
            CALL,
        ),
    ),
    Cheat(
        what="handles a signal",
        verdict="symbol_refused",
        source=_body("signal(11, 0); multiply(a, b, c);", "void *signal(int, void *);"),
    ),
    Cheat(
        what="jumps out of its call",
        verdict="symbol_refused",
        source=_body(
            "if (!_setjmp(here)) multiply(a, b, c);", "static long here[64]; int _setjmp(long *);"
        ),
    ),
    Cheat(
        what="starts a process",
        verdict="symbol_refused",
        source=_body("multiply(a, b, c); fork();", "int fork(void);"),
    ),
    Cheat(
        what="opens a socket, by number",
        verdict="system_call",
        source=_called("call(SOCKET, 2, 1, 0, 0);"),
    ),
    Cheat(
        what="runs a program, by number",
        verdict="system_call",
        source=_called('call(EXECVE, (long)"/bin/true", 0, 0, 0);'),
    ),
    Cheat(
        what="kills other processes, by number",
        verdict="system_call",
        source=_called("call(KILL, -1, 9, 0, 0);"),
    ),
    Cheat(
        what="looks into another process, by number",
        verdict="system_call",
        source=_called("call(PTRACE, 16, 1, 0, 0);"),
    ),
    Cheat(
        what="takes a huge stack",
        verdict="build_error",
        source=_body("volatile char room[8 << 20]; room[9] = 1; multiply(a, b, c);"),
    ),
    Cheat(
        what="recurses without an end",
        verdict="crashed",
        source=_body(
            "multiply(a, b, c); c[0] += 0 * deeper(1);",
            "static int deeper(int n) { volatile int own[1000]; own[n % 1000] = n;"
            " return deeper(n + 1) + own[3]; }",
        ),
    ),
    Cheat(
        what="takes all memory",
        verdict="out_of_memory",
        source=_body(
            "for (;;) { volatile char *more = malloc(256 << 20); more[0] = 1; } multiply(a, b, c);",
            "#include <stdlib.h>\n",
        ),
    ),
    Cheat(
        what="never returns",
        verdict="timed_out",
        source=_body('multiply(a, b, c); for (;;) __asm__ volatile("");'),
    ),
    Cheat(
        what="returns an error",
        verdict="returned_error",
        source=_body("multiply(a, b, c); if (a) return 3;"),
    ),
    Cheat(
        what="includes a file that is no header of the list",
        verdict="header_refused",
        source='#include "/etc/passwd"\n' + _body("multiply(a, b, c);"),
    ),
    Cheat(
        what="takes in a file by the assembler",
        verdict="build_error",
        source='__asm__(".incbin \\"/etc/passwd\\"");' + _body("multiply(a, b, c);"),
    ),
)
