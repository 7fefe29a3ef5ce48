"""CUDA C++ of single instructions that persistent products use, each as a function.

Barriers of shared memory (mbarrier), copies of boxes by the tensor memory accelerator,
warpgroup multiplications. Sources: PTX ISA, sections of the same names; "Matrix
Descriptor" for `tuner_operand`.
"""

from __future__ import annotations

from tuner.spaces.program.instructions import SHORT_DTYPES
from tuner.spaces.program.persistent import COLUMNS, STEP_BYTES, Factor


def multiplication(panels: int, factors: tuple[Factor, Factor], *, transposed: bool) -> str:
    """The function that multiplies a fragment by `panels` panels, 32 bytes of the depth.

    `transposed`: the right operand has its columns before its depth.
    """
    columns, sums = COLUMNS * panels, COLUMNS * panels // 2
    left, right = factors
    depth, whole = STEP_BYTES // left.itemsize, left.accumulator == "int32"
    kinds = f"{SHORT_DTYPES[left.accumulator]}.{left.kind}.{right.kind}"
    name, register = ("int", "r") if whole else ("float", "f")
    outputs = ", ".join(f"%{number}" for number in range(sums))
    operands = ", ".join(f'"+{register}"(d[{number}])' for number in range(sums))
    # Operands, then: add to the sums, of floats both signs, and of two bytes the order of
    # either operand.
    turned = "" if whole else ", 1, 1"
    if left.itemsize == 2:
        turned += f", 0, {0 if transposed else 1}"
    last = f"%{sums}, %{sums + 1}, p{turned}"
    return f"""
static __device__ __forceinline__ void tuner_multiply(\
{name} (&d)[{sums}], unsigned long long left, unsigned long long right, int add) {{
  asm volatile("{{.reg .pred p; setp.ne.b32 p, %{sums + 2}, 0; \
wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{kinds} {{{outputs}}}, {last};}}" \
: {operands} : "l"(left), "l"(right), "r"(add));
}}
"""


# A backslash at the end of a line is no part of the text.
COMMON = """
static __device__ __forceinline__ unsigned tuner_shared(const void *place) { \
return (unsigned)__cvta_generic_to_shared(place); }
static __device__ __forceinline__ void tuner_warpgroup_barrier(unsigned number) {
  asm volatile("bar.sync %0, 128;" :: "r"(number) : "memory");
}
static __device__ __forceinline__ void tuner_put(unsigned place, float low, float high) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" \
:: "r"(place), "f"(low), "f"(high) : "memory");
}
static __device__ __forceinline__ void tuner_put(unsigned place, int low, int high) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" \
:: "r"(place), "r"(low), "r"(high) : "memory");
}
static __device__ __forceinline__ void tuner_put_bytes(unsigned place, int low, int high) {
  unsigned short both = (unsigned short)((low & 255) | (high & 255) << 8);
  asm volatile("st.shared.u16 [%0], %1;" :: "r"(place), "h"(both) : "memory");
}
"""
INSTRUCTIONS = """
struct __align__(128) tuner_map { unsigned char bytes[128]; };
static __device__ __forceinline__ void tuner_barrier(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}
/* Barriers are ready for copies. */
static __device__ __forceinline__ void tuner_barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
static __device__ __forceinline__ void tuner_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" \
:: "r"(barrier), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void tuner_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
static __device__ __forceinline__ void tuner_wait(unsigned barrier, unsigned parity) {
  asm volatile("{.reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; \
@p bra DONE; bra AGAIN; DONE: }" :: "r"(barrier), "r"(parity) : "memory");
}
/* Boxes of a matrix, of one of several, and of images. */
static __device__ __forceinline__ void tuner_load(\
unsigned to, const tuner_map *from, int x, int y, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes \
[%0], [%1, {%2, %3}], [%4];" :: "r"(to), "l"(from), "r"(x), "r"(y), "r"(barrier) : "memory");
}
static __device__ __forceinline__ void tuner_load(\
unsigned to, const tuner_map *from, int x, int y, int z, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes \
[%0], [%1, {%2, %3, %4}], [%5];" \
:: "r"(to), "l"(from), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}
static __device__ __forceinline__ void tuner_load(\
unsigned to, const tuner_map *from, int x, int y, int z, int u, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes \
[%0], [%1, {%2, %3, %4, %5}], [%6];" \
:: "r"(to), "l"(from), "r"(x), "r"(y), "r"(z), "r"(u), "r"(barrier) : "memory");
}
static __device__ __forceinline__ void tuner_store(\
const tuner_map *to, int x, int y, unsigned from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" \
:: "l"(to), "r"(x), "r"(y), "r"(from) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
static __device__ __forceinline__ void tuner_store(\
const tuner_map *to, int x, int y, int z, unsigned from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" \
:: "l"(to), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
static __device__ __forceinline__ void tuner_store(\
const tuner_map *to, int x, int y, int z, int u, unsigned from) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group \
[%0, {%1, %2, %3, %4}], [%5];" \
:: "l"(to), "r"(x), "r"(y), "r"(z), "r"(u), "r"(from) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until all but `left` of the thread's stores have been read from shared memory. */
template <int left> static __device__ __forceinline__ void tuner_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(left) : "memory");
}
/* What threads wrote to shared memory is there for stores. */
static __device__ __forceinline__ void tuner_written() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Warpgroups in turn: one waits until the other passes its turn on. */
static __device__ __forceinline__ void tuner_wait_for_turn(unsigned number) {
  asm volatile("bar.sync %0, 256;" :: "r"(number) : "memory");
}
static __device__ __forceinline__ void tuner_pass_turn(unsigned number) {
  asm volatile("bar.arrive %0, 256;" :: "r"(number) : "memory");
}
template <int registers> static __device__ __forceinline__ void tuner_fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(registers));
}
template <int registers> static __device__ __forceinline__ void tuner_more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(registers));
}
/* An operand in rows of 128 bytes with their pieces permuted (128-byte swizzle), \
eight rows 1024 bytes from the next eight. */
static __device__ __forceinline__ unsigned long long tuner_operand(\
unsigned place, unsigned panel_bytes) {
  return (unsigned long long)((place & 0x3ffff) >> 4) | \
(unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
static __device__ __forceinline__ void tuner_multiplications_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void tuner_multiplications_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until all but `left` groups of multiplications are done. */
template <int left> static __device__ __forceinline__ void tuner_multiplied() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(left) : "memory");
}
/* Sums stay where multiplications that are not done yet add to them. */
template <int count> static __device__ __forceinline__ void tuner_keep(float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i]) :: "memory");
}
template <int count> static __device__ __forceinline__ void tuner_keep(int (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(sums[i]) :: "memory");
}
/* Four squares of 8 by 8 elements of 16 bits, whose rows the lanes name: eight lanes a square. */
static __device__ __forceinline__ void tuner_put(\
unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" \
:: "r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
"""
# Two floats as one word of 16-bit numbers.
PACKINGS = {
    dtype: f"""
static __device__ __forceinline__ unsigned tuner_pair_{dtype}(float low, float high) {{
  unsigned both;
  asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}}
"""
    for dtype, kind in SHORT_DTYPES.items()
    if kind in ("f16", "bf16")
}
