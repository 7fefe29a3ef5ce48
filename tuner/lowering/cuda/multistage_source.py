"""CUDA C++ of single instructions that multistage products use, each as a function.

Asynchronous copies, fragments of operands from shared memory, multiplications of a warp.
Sources: PTX ISA, sections "cp.async", "ldmatrix", "mma".
"""

from __future__ import annotations

from tuner.spaces.program.instructions import SHORT_DTYPES
from tuner.spaces.program.persistent import STEP_BYTES, Factor


def multiplication(symbol: str, factors: tuple[Factor, Factor]) -> str:
    """The function that adds the product of 16 rows and 8 columns, 32 bytes of the depth."""
    left, right = factors
    depth, whole = STEP_BYTES // left.itemsize, left.accumulator == "int32"
    name, register = ("int", "r") if whole else ("float", "f")
    kind = SHORT_DTYPES[left.accumulator]
    return f"""
static __device__ __forceinline__ void {symbol}_multiply(\
{name} *d, const unsigned *left, const unsigned *right) {{
  asm volatile("mma.sync.aligned.m16n8k{depth}.row.col.{kind}.{left.kind}.{right.kind}.{kind} \
{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};" \
: "+{register}"(d[0]), "+{register}"(d[1]), "+{register}"(d[2]), "+{register}"(d[3]) \
: "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}}
"""


# A backslash at the end of a line is no part of the text.
INSTRUCTIONS = """
/* 16 bytes, or zeros. */
static __device__ __forceinline__ void tuner_copy(void *to, const void *from, int bytes) {
  unsigned place = tuner_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: \
"r"(place), "l"(from), "r"(bytes));
}
static __device__ __forceinline__ void tuner_copies_end() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Four squares of 8 rows of 16 bytes, whose rows the lanes name: eight lanes a square. */
static __device__ __forceinline__ void tuner_take(unsigned *d, unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" \
: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row) : "memory");
}
/* The same, each square of 8 by 8 elements of 16 bits turned. */
static __device__ __forceinline__ void tuner_take_turned(unsigned *d, unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" \
: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(row) : "memory");
}
static __device__ __forceinline__ void tuner_put_word(unsigned place, unsigned both) {
  asm volatile("st.shared.b32 [%0], %1;" :: "r"(place), "r"(both) : "memory");
}
"""
