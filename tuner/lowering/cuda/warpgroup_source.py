"""CUDA C++ of what sketches call beside TVM's own: warpgroups' instructions and copies
that may be zero.

Sources: PTX ISA, "wgmma.mma_async" (which thread holds which sums), "Matrix
Descriptor", "Async proxy".
"""

from __future__ import annotations

import re
from functools import cache

from tuner.lowering.cuda.warpgroup import NAME
from tuner.lowering.passes.guarded_copies import SOURCE, SYMBOL

_CALL = re.compile(r"tuner_(warpgroup_multiply_\d_\d_\w+)\(")
_SHARED, _ALIGNED = (f"extern __shared__ __align__({size}) uchar" for size in (64, 1024))
_FIRST_KERNEL = 'extern "C" __global__'


def with_instructions(source: str) -> str:
    """CUDA C++ as TVM makes it, with what it calls of this module in front of its first kernel."""
    names = sorted(set(_CALL.findall(source)))
    if not names:
        return source
    copies = SOURCE if f"{SYMBOL}(" in source else ""
    # Rows are permuted by their address, from which the instruction tells a row's number.
    source = source.replace(_SHARED, _ALIGNED)
    place = source.index(_FIRST_KERNEL)
    return (
        source[:place]
        + copies
        + _COMMON
        + "".join(_function(name) for name in names)
        + source[place:]
    )


@cache
def _function(name: str) -> str:
    found = NAME.fullmatch(name)
    assert found is not None
    squares, panels, kind, turned = int(found[1]), int(found[2]), found[3], found[4] is not None
    columns, sums = 64 * panels, 32 * panels
    outputs = ", ".join(f"%{number}" for number in range(sums))
    # operands, then: add to the sums, signs, the right one's order
    last = f"%{sums}, %{sums + 1}, 1, 1, 1, 0, {0 if turned else 1}"
    operands = ", ".join(f'"+f"(d[{number // 16}].x[{number % 16}])' for number in range(sums))
    # A row of the reduction's 64 is 128 bytes of the left operand; of the right one it
    # is 8 groups of rows of 128 bytes.
    step = "k * 32" if turned else "k * 2048"
    panel = 1 if turned else 8192
    return f"""
static __device__ __forceinline__ void tuner_{name}_16(
    tuner_sums *d, unsigned long long left, unsigned long long right) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {{{outputs}}}, {last};"
    : {operands} : "l"(left), "l"(right));
}}
static __device__ __forceinline__ void tuner_{name}(tuner_sums *sums, int first, const void *left, const void *right) {{
  unsigned a = tuner_shared(left), b = tuner_shared(right);
  tuner_begin();
#pragma unroll
  for (int square = 0; square < {squares}; ++square) {{
#pragma unroll
    for (int k = 0; k < 4; ++k) {{
      unsigned long long rows = tuner_matrix(a + square * 8192 + k * 32, 1), columns = tuner_matrix(b + {step}, {panel});
      tuner_{name}_16(sums + first + square * {2 * panels}, rows, columns);
    }}
  }}
  tuner_end();
}}
"""  # noqa: E501


_COMMON = """
/* Sums of 64 rows by 32 columns, spread over the 128 threads of a warpgroup as wgmma has them. */
namespace nvcuda { namespace wmma {
template <> class fragment<accumulator, 64, 32, 64, float> { public: float x[16]; };
typedef fragment<accumulator, 64, 32, 64, float> tuner_warpgroup_sums;
static __device__ __forceinline__ void fill_fragment(tuner_warpgroup_sums &sums, float value) {
#pragma unroll
  for (int i = 0; i < 16; ++i) sums.x[i] = value;
}
static __device__ __forceinline__ void store_matrix_sync(float *to, const tuner_warpgroup_sums &sums, unsigned stride, layout_t) {
  float *mine = to + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * stride + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *(float2 *)(mine + i * 8) = make_float2(sums.x[4 * i], sums.x[4 * i + 1]);
    *(float2 *)(mine + 8 * stride + i * 8) = make_float2(sums.x[4 * i + 2], sums.x[4 * i + 3]);
  }
}
}}
typedef nvcuda::wmma::tuner_warpgroup_sums tuner_sums;
static __device__ __forceinline__ unsigned tuner_shared(const void *place) { return (unsigned)__cvta_generic_to_shared(place); }
/* An operand in rows of 128 bytes with their pieces permuted (128-byte swizzle), eight rows 1024 bytes from the next eight. */
static __device__ __forceinline__ unsigned long long tuner_matrix(unsigned place, unsigned panel_bytes) {
  return (unsigned long long)((place & 0x3ffff) >> 4) | (unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
static __device__ __forceinline__ void tuner_begin() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void tuner_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/* Tensor cores read by another way than copies write: each thread's copies are ordered before a barrier lets others read them. */
static __device__ __forceinline__ void tuner_order() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#define __syncthreads() (tuner_order(), __syncthreads())
"""  # noqa: E501
