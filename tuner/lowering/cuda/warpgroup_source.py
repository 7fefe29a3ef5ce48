"""CUDA C++ of the functions that kernels call beside those of TVM's code generator.

Warpgroup instructions, copies of 16 bytes or zeros, maxima and minima. Sources: PTX ISA,
"wgmma.mma_async" (which thread holds which accumulators), "Matrix Descriptor", "Async
proxy".
"""

from __future__ import annotations

from collections.abc import Collection

from tuner.lowering.cuda.warpgroup import warpgroup_symbol
from tuner.lowering.passes.extremes import SOURCES as EXTREMES
from tuner.lowering.passes.guarded_copies import SOURCE
from tuner.spaces.program.instructions import SHORT_DTYPES, WarpgroupMultiply

_SHARED, _ALIGNED = (f"extern __shared__ __align__({size}) uchar" for size in (64, 1024))
_FIRST_KERNEL = 'extern "C" __global__'


def with_instructions(
    source: str, instructions: Collection[WarpgroupMultiply], *, guarded_copies: bool
) -> str:
    """The source with the functions that it calls, in front of its first kernel.

    `instructions`: the warpgroup multiplications of the kernels. `guarded_copies`:
    whether a kernel copies with a condition.
    """
    extremes = "".join(text for name, text in EXTREMES.items() if f"{name}(" in source)
    source = source.replace(_FIRST_KERNEL, extremes + _FIRST_KERNEL, 1)
    if not instructions:
        return source
    # Rows are permuted by their address, from which the instruction tells a row's number.
    source = source.replace(_SHARED, _ALIGNED)
    by_name = sorted(instructions, key=lambda instruction: instruction.name)
    place = source.index(_FIRST_KERNEL)
    copies = SOURCE if guarded_copies else ""
    functions = "".join(map(_function, by_name))
    return source[:place] + copies + _COMMON + functions + source[place:]


def _function(instruction: WarpgroupMultiply) -> str:
    """The function of one multiplication. It steps through the 64 of the reduction by 16."""
    symbol, panels = warpgroup_symbol(instruction), instruction.panels
    kind, transposed = SHORT_DTYPES[instruction.dtype], instruction.transposed
    columns, sums = 64 * panels, 32 * panels
    outputs = ", ".join(f"%{number}" for number in range(sums))
    # operands, then: add to the sums, signs, the right one's order
    last = f"%{sums}, %{sums + 1}, 1, 1, 1, 0, {0 if transposed else 1}"
    operands = ", ".join(f'"+f"(d[{number // 16}].x[{number % 16}])' for number in range(sums))
    # A row of the reduction's 64 is 128 bytes of the left operand; of the right one it
    # is 8 groups of rows of 128 bytes.
    step = "k * 32" if transposed else "k * 2048"
    panel = 1 if transposed else 8192
    return f"""
static __device__ __forceinline__ void {symbol}_16(
    tuner_sums *d, unsigned long long left, unsigned long long right) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} \
{{{outputs}}}, {last};"
    : {operands} : "l"(left), "l"(right));
}}
static __device__ __forceinline__ void {symbol}(\
tuner_sums *sums, int first, const void *left, const void *right) {{
  unsigned a = tuner_shared(left), b = tuner_shared(right);
  tuner_begin();
#pragma unroll
  for (int square = 0; square < {instruction.fragments}; ++square) {{
#pragma unroll
    for (int k = 0; k < 4; ++k) {{
      unsigned long long rows = tuner_matrix(a + square * 8192 + k * 32, 1), \
columns = tuner_matrix(b + {step}, {panel});
      {symbol}_16(sums + first + square * {2 * panels}, rows, columns);
    }}
  }}
  tuner_end();
}}
"""


# A backslash at the end of a line is no part of the text.
_COMMON = """
/* Sums of 64 rows by 32 columns, spread over the 128 threads of a warpgroup as wgmma has them. */
namespace nvcuda { namespace wmma {
template <> class fragment<accumulator, 64, 32, 64, float> { public: float x[16]; };
typedef fragment<accumulator, 64, 32, 64, float> tuner_warpgroup_sums;
static __device__ __forceinline__ void fill_fragment(tuner_warpgroup_sums &sums, float value) {
#pragma unroll
  for (int i = 0; i < 16; ++i) sums.x[i] = value;
}
static __device__ __forceinline__ void store_matrix_sync(\
float *to, const tuner_warpgroup_sums &sums, unsigned stride, layout_t) {
  float *mine = to + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * stride + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *(float2 *)(mine + i * 8) = make_float2(sums.x[4 * i], sums.x[4 * i + 1]);
    *(float2 *)(mine + 8 * stride + i * 8) = make_float2(sums.x[4 * i + 2], sums.x[4 * i + 3]);
  }
}
}}
typedef nvcuda::wmma::tuner_warpgroup_sums tuner_sums;
static __device__ __forceinline__ unsigned tuner_shared(const void *place) { \
return (unsigned)__cvta_generic_to_shared(place); }
/* An operand in rows of 128 bytes with their pieces permuted (128-byte swizzle), \
eight rows 1024 bytes from the next eight. */
static __device__ __forceinline__ unsigned long long tuner_matrix(\
unsigned place, unsigned panel_bytes) {
  return (unsigned long long)((place & 0x3ffff) >> 4) | \
(unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
static __device__ __forceinline__ void tuner_begin() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void tuner_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/* Tensor cores read by another way than copies write: \
each thread's copies are ordered before a barrier lets others read them. */
static __device__ __forceinline__ void tuner_order() { \
asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#define __syncthreads() (tuner_order(), __syncthreads())
"""
