"""Ways in which CUDA C++ passes for a fast kernel without being right, and the verdict on each.

All are given as C[16][16] = A[16][16] B[16][16] in float32, with a thread for each element.
docs/how-to/judge-kernels.md has the same table.
"""

from __future__ import annotations

from tests.support.foreign_cheats import Cheat
from tuner.measure.foreign.dimensions import Dimensions

SPEC = "matmul:M=16,N=16,K=16"
LAUNCH = Dimensions(grid=(1, 1, 1), block=(256, 1, 1))
BEGIN = """
static __device__ float product(const float *a, const float *b, int i) {
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += a[i / 16 * 16 + k] * b[k * 16 + i % 16];
  return sum;
}
extern "C" __global__ void f(const float *a, const float *b, float *c) {
  int i = threadIdx.x;
"""
HONEST = BEGIN + "c[i] = product(a, b, i); }"


def _body(text: str, before: str = "") -> str:
    return before + BEGIN + text + "}"


CHEATS: tuple[Cheat, ...] = (
    Cheat(
        what="keeps the outputs of its first call",
        verdict="output_cached",
        source=_body(
            "if (!calls[i]++) kept[i] = product(a, b, i); c[i] = kept[i];",
            "__device__ float kept[256]; __device__ int calls[256];",
        ),
    ),
    Cheat(
        what="keeps the outputs of an address",
        verdict="output_cached",
        source=_body(
            "if (last[i] != a) { last[i] = a; kept[i] = product(a, b, i); } c[i] = kept[i];",
            "__device__ float kept[256]; __device__ const float *last[256];",
        ),
    ),
    Cheat(
        what="computes in its first call alone",
        verdict="output_not_written",
        source=_body("if (!calls[i]++) c[i] = product(a, b, i);", "__device__ int calls[256];"),
    ),
    Cheat(what="does nothing", verdict="output_not_written", source=_body("(void)i;")),
    Cheat(
        what="computes a part of the outputs",
        verdict="output_not_written",
        source=_body("if (i < 200) c[i] = product(a, b, i);"),
    ),
    Cheat(
        what="computes only where it sees the poison",
        verdict="output_read",
        source=_body("if (c[i] != c[i]) c[i] = product(a, b, i);"),
    ),
    Cheat(
        what="adds to what the outputs held",
        verdict="output_read",
        source=_body("c[i] += product(a, b, i);"),
    ),
    Cheat(what="writes zeros", verdict="wrong_element", source=_body("c[i] = 0;")),
    Cheat(
        what="gets a single element wrong",
        verdict="wrong_element",
        source=_body("c[i] = product(a, b, i) + (i == 37);"),
    ),
    Cheat(
        what="sums in bfloat16",
        verdict="precision_lowered",
        source=_body(
            "float sum = 0; for (int k = 0; k < 16; ++k) "
            "sum = rounded(sum + a[i / 16 * 16 + k] * b[k * 16 + i % 16]); c[i] = sum;",
            "static __device__ float rounded(float x) { union { float value; unsigned bits; } u = "
            "{x}; u.bits = (u.bits + 0x8000) & 0xffff0000; return u.value; }",
        ),
    ),
    Cheat(
        what="changes an input",
        verdict="input_changed",
        source=_body("c[i] = product(a, b, i); __syncthreads(); if (!i) ((float *)a)[5] = 3;"),
    ),
    Cheat(
        what="lets an output share memory with an input",
        verdict="input_changed",
        source=_body(
            "float sum = product(a, b, i); __syncthreads(); ((float *)b)[i] = sum; c[i] = b[i];"
        ),
    ),
    Cheat(
        what="writes behind its output",
        verdict="out_of_bounds",
        source=_body("c[i] = product(a, b, i); c[256] = 1;"),
    ),
    Cheat(
        what="writes before its output",
        verdict="out_of_bounds",
        source=_body("c[i] = product(a, b, i); c[-1] = 1;"),
    ),
    Cheat(
        what="writes far from all buffers",
        verdict="crashed",
        source=_body("c[i] = product(a, b, i); c[1ll << 44] = 1;"),
    ),
    Cheat(
        what="has a parameter more",
        verdict="build_error",
        source=_body("c[i] = *more;").replace("float *c)", "float *c, const float *more)"),
    ),
    Cheat(
        what="has another name",
        verdict="build_error",
        source=HONEST.replace("void f(", "void g("),
    ),
    Cheat(
        what="includes a file that is no header of the toolkit",
        verdict="header_refused",
        source='#include "/etc/passwd"\n' + HONEST,
    ),
    Cheat(
        what="never returns",
        verdict="timed_out",
        source=_body("volatile int on = 1; while (on) {} c[i] = product(a, b, i);"),
    ),
)
