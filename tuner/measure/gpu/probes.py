"""Small kernels whose time says what a GPU can do at most, as CUDA C++ and plain data.

Each computes something known from ones that it reads from memory, so that a kernel whose
work a compiler left out is noticed. Sources: PTX ISA, "mma", "wgmma.mma_async", "Matrix
Descriptor"; CUDA C++ Programming Guide, "Arithmetic Instructions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.runtime.cuda_module import CudaModule, Launch
from tuner.target.arithmetic import ArithmeticUnit
from tuner.target.cuda import WARP
from tuner.workload.expression import Tensor

OLDEST = 80  # architecture whose tensor cores the instructions below are for
LIBRARY = "limits"
THREADS = 256  # of each block
# Blocks of a multiprocessor. Arithmetic: two warps for each scheduler, with enough
# independent sums to hide the latency. Memory: 64 KiB on their way at a time.
ARITHMETIC_BLOCKS, MEMORY_BLOCKS = 1, 4
CONTROL = 3  # int64: rounds, vectors of 16 bytes, vectors that the next round is moved by
VECTOR_BYTES = 16
Traffic = Literal["read", "write", "copy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateProbe:
    """A kernel that only multiplies and adds."""

    unit: ArithmeticUnit
    dtype: str  # of the factors
    source: str  # of the kernel named `symbol`
    word: int  # 32 bits that hold ones of the dtype
    round_flops: int  # of a block in a round, a multiply-add as 2
    round_sum: int  # what a round adds to every sum
    first_sum: int = 0  # what every sum is before

    @property
    def symbol(self) -> str:
        return f"{self.unit}_{self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInstruction:
    """An instruction of the tensor cores, with 32-bit sums."""

    dtype: str
    kind: str  # the dtype as PTX has it
    word: int
    depth: int  # products that it adds to each sum
    oldest: int = OLDEST  # architecture that has it for a warp

    @property
    def sums(self) -> str:
        return "s32" if self.kind == "s8" else "f32"

    @property
    def sum_type(self) -> str:
        return "int" if self.kind == "s8" else "float"

    @property
    def constraint(self) -> str:
        return "+r" if self.kind == "s8" else "+f"


INSTRUCTIONS = (
    TensorInstruction(dtype="float16", kind="f16", word=0x3C003C00, depth=16),
    TensorInstruction(dtype="bfloat16", kind="bf16", word=0x3F803F80, depth=16),
    TensorInstruction(dtype="tf32", kind="tf32", word=0x3F800000, depth=8),
    TensorInstruction(dtype="int8", kind="s8", word=0x01010101, depth=32),
    TensorInstruction(dtype="float8_e4m3", kind="e4m3", word=0x38383838, depth=32, oldest=89),
)
WARPGROUP_ARCHITECTURE = 90
_CHAINS, _STEPS = 16, 32  # independent sums of a thread, and multiply-adds to each in a round
_MMA_CHAINS, _MMA_STEPS = 8, 8
_WGMMA_STEPS, _WGMMA_SUMS = 16, 128

_PLAIN = """
extern "C" __global__ void __launch_bounds__({threads}) {symbol}(\
const long long *control, const unsigned *ones, float *sums) {{
  {type} sum[{chains}];
  {load}
#pragma unroll
  for (int i = 0; i < {chains}; ++i) sum[i] = {start};
  for (long long round = control[0]; round > 0; --round) {{
#pragma unroll
    for (int step = 0; step < {steps}; ++step) {{
#pragma unroll
      for (int i = 0; i < {chains}; ++i) {{ {multiply} }}
    }}
    __syncwarp();
  }}
  {type} least = sum[0];
#pragma unroll
  for (int i = 1; i < {chains}; ++i) least = sum[i] < least ? sum[i] : least;
  sums[blockIdx.x * {threads} + threadIdx.x] = (float)least;
}}
"""

_MMA = """
extern "C" __global__ void __launch_bounds__({threads}) {symbol}(\
const long long *control, const unsigned *ones, float *sums) {{
  unsigned word = ones[0];
  {type} sum[{count}];
#pragma unroll
  for (int i = 0; i < {count}; ++i) sum[i] = 0;
  for (long long round = control[0]; round > 0; --round) {{
#pragma unroll
    for (int step = 0; step < {steps}; ++step) {{
{multiply}
    }}
    __syncwarp();
  }}
  {type} least = sum[0];
#pragma unroll
  for (int i = 1; i < {count}; ++i) least = sum[i] < least ? sum[i] : least;
  sums[blockIdx.x * {threads} + threadIdx.x] = (float)least;
}}
"""

# Both operands in rows of 128 bytes with their pieces permuted, eight rows 1024 bytes from
# the next eight; all are ones.
_WGMMA = """
extern "C" __global__ void __launch_bounds__({threads}) {symbol}(\
const long long *control, const unsigned *ones, float *sums) {{
  __align__(1024) __shared__ unsigned words[{words}];
  for (int i = threadIdx.x; i < {words}; i += {threads}) words[i] = ones[0];
  __syncthreads();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  unsigned place = (unsigned)__cvta_generic_to_shared(words);
  unsigned long long left = (unsigned long long)((place & 0x3ffff) >> 4) | \
1ull << 16 | 64ull << 32 | 1ull << 62;
  unsigned long long right = left + {left_bytes} / 16;
  {type} sum[{count}];
#pragma unroll
  for (int i = 0; i < {count}; ++i) sum[i] = 0;
  for (long long round = control[0]; round > 0; --round) {{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < {steps}; ++step) {{
      {multiply}
    }}
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncwarp();
  }}
  {type} least = sum[0];
#pragma unroll
  for (int i = 1; i < {count}; ++i) least = sum[i] < least ? sum[i] : least;
  sums[blockIdx.x * {threads} + threadIdx.x] = (float)least;
}}
"""

# Vectors that a round touches are moved from round to round, so that each is loaded anew.
_MEMORY = """
extern "C" __global__ void __launch_bounds__(256) {symbol}({arguments}) {{
  long long vectors = control[1], shift = control[2], start = 0;
  long long stride = (long long)gridDim.x * 256, first = blockIdx.x * 256 + threadIdx.x;
  {before}
  for (long long round = control[0]; round > 0; --round) {{
#pragma unroll 4
    for (long long i = first; i < vectors; i += stride) {{
      long long place = i + start < vectors ? i + start : i + start - vectors;
      {body}
    }}
    start = start + shift < vectors ? start + shift : start + shift - vectors;
  }}
  {after}
}}
"""
# Past the first-level cache, which keeps nothing from one kernel to the next.
_TRAFFIC: dict[Traffic, str] = {
    "write": _MEMORY.format(
        symbol="memory_write",
        arguments="const long long *control, uint4 *to",
        before="",
        body="unsigned x = (unsigned)(place * 2654435761u); "
        "to[place] = make_uint4(x, x ^ (unsigned)round, ~x, x + 1);",
        after="",
    ),
    "read": _MEMORY.format(
        symbol="memory_read",
        arguments="const long long *control, const uint4 *from, float *sums",
        before="unsigned mixed = 0;",
        body="uint4 x = __ldcg(from + place); mixed += x.x ^ x.y ^ x.z ^ x.w;",
        after="if (mixed == 1) sums[0] = 1;",
    ),
    "copy": _MEMORY.format(
        symbol="memory_copy",
        arguments="const long long *control, const uint4 *from, uint4 *to",
        before="",
        body="to[place] = __ldcg(from + place);",
        after="",
    ),
}
SHARED_VECTORS, SHARED_LOADS = 2048, 8  # of a block, and of a thread in a round
_SHARED = f"""
extern "C" __global__ void __launch_bounds__({THREADS}) shared_read(\
const long long *control, float *sums) {{
  __align__(16) __shared__ uint4 held[{SHARED_VECTORS}];
  for (unsigned i = threadIdx.x; i < {SHARED_VECTORS}; i += {THREADS}) \
held[i] = make_uint4(i, 3 * i, 5 * i, 7 * i);
  __syncthreads();
  unsigned mixed = 0, first = threadIdx.x;
  for (long long round = control[0]; round > 0; --round) {{
#pragma unroll
    for (unsigned i = 0; i < {SHARED_LOADS}; ++i) {{
      uint4 x = held[(first + i * {THREADS}) % {SHARED_VECTORS}];
      mixed += x.x ^ x.y ^ x.z ^ x.w;
    }}
    first += 1;
  }}
  if (mixed == 1) sums[0] = 1;
}}
"""
_EMPTY = f"""
extern "C" __global__ void __launch_bounds__({WARP}) launched(const long long *control) {{}}
"""


def rate_probes(architecture: int) -> tuple[RateProbe, ...]:
    """The kernels of multiplying and adding that an architecture (80, 90) has."""
    probes = [*_on_cuda_cores()]
    for instruction in INSTRUCTIONS:
        if architecture >= instruction.oldest:
            probes.append(_mma(instruction))
        if architecture == WARPGROUP_ARCHITECTURE:
            probes.append(_wgmma(instruction))
    return tuple(probes)


def source(probes: Sequence[RateProbe]) -> str:
    """CUDA C++ of all kernels, with these of arithmetic."""
    return "".join([_EMPTY, *_TRAFFIC.values(), _SHARED, *(probe.source for probe in probes)])


def modules(
    probes: Sequence[RateProbe], *, arch: str, cubin: bytes, multiprocessors: int, set_bytes: int
) -> tuple[CudaModule, ...]:
    """The kernels as functions of a library, by the names of `RateProbe.symbol`,
    `memory_read`, `memory_write`, `memory_copy`, `shared_read` and `launched`.

    `set_bytes`: of each of the two buffers that memory's kernels move.
    """
    control = Tensor(name="control", shape=(CONTROL,), dtype="int64")
    ones = Tensor(name="ones", shape=(1,), dtype="uint32")
    sums = Tensor(
        name="sums", shape=(multiprocessors * ARITHMETIC_BLOCKS * THREADS,), dtype="float32"
    )
    origin, to = (
        Tensor(name=name, shape=(set_bytes // 4,), dtype="uint32") for name in ("from", "to")
    )

    def module(
        symbol: str,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        blocks: int,
        threads: int = THREADS,
    ) -> CudaModule:
        return CudaModule(
            symbol=symbol,
            inputs=inputs,
            outputs=outputs,
            workspace=(),
            launches=(
                Launch(
                    kernel=symbol,
                    arguments=tuple(tensor.name for tensor in (*inputs, *outputs)),
                    grid=(blocks, 1, 1),
                    block=(threads, 1, 1),
                    shared_bytes=0,
                ),
            ),
            cubins=((arch, cubin),),
        )

    return (
        module("launched", (control,), (), 1, WARP),  # nothing takes less
        module("memory_write", (control,), (to,), MEMORY_BLOCKS * multiprocessors),
        module("memory_read", (control, origin), (sums,), MEMORY_BLOCKS * multiprocessors),
        module("memory_copy", (control, origin), (to,), MEMORY_BLOCKS * multiprocessors),
        module("shared_read", (control,), (sums,), MEMORY_BLOCKS * multiprocessors),
        *(
            module(probe.symbol, (control, ones), (sums,), ARITHMETIC_BLOCKS * multiprocessors)
            for probe in probes
        ),
    )


def _on_cuda_cores() -> tuple[RateProbe, ...]:
    per_round = 2 * THREADS * _CHAINS * _STEPS

    def plain(
        dtype: str,
        word: int,
        *,
        type: str,
        load: str,
        multiply: str,
        start: str = "0",
        adds: int = 1,
        factors: int = 1,
        first: int = 0,
        steps: int = _STEPS,
    ) -> RateProbe:
        text = _PLAIN.format(
            threads=THREADS,
            symbol=f"{ArithmeticUnit.CUDA_CORES}_{dtype}",
            type=type,
            chains=_CHAINS,
            steps=steps,
            load=load,
            start=start,
            multiply=multiply,
        )
        return RateProbe(
            unit=ArithmeticUnit.CUDA_CORES,
            dtype=dtype,
            source=text,
            word=word,
            round_flops=per_round * factors * steps // _STEPS,
            round_sum=adds * steps,
            first_sum=first,
        )

    ones = "float one = __uint_as_float(ones[0]);"
    return (
        plain(
            "float32", 0x3F800000, type="float", load=ones, multiply="sum[i] = sum[i] * one + one;"
        ),
        plain(
            "float64",
            0x3F800000,
            type="double",
            load=f"{ones} double wide = one;",
            multiply="sum[i] = sum[i] * wide + wide;",
            steps=_STEPS // 4,
        ),
        plain(
            "int32",
            1,
            type="int",
            load="int one = (int)ones[0];",
            multiply="sum[i] = sum[i] * one + one;",
        ),
        plain(
            "int8",
            0x01010101,
            type="int",
            load="int factors = (int)ones[0];",
            multiply="sum[i] = __dp4a(factors, factors, sum[i]);",
            adds=4,
            factors=4,
            steps=_STEPS // 4,
        ),
        *(
            # Two at a time. What is added to a sum is zero.
            plain(
                dtype,
                word,
                type="unsigned",
                load="unsigned pair = ones[0], zeros = pair ^ pair;",
                start="pair",
                multiply=f'asm volatile("fma.rn.{kind}x2 %0, %1, %2, %0;" '
                ': "+r"(sum[i]) : "r"(pair), "r"(zeros));',
                first=word,
                adds=0,
                factors=2,
            )
            for dtype, kind, word in (
                ("float16", "f16", 0x3C003C00),
                ("bfloat16", "bf16", 0x3F803F80),
            )
        ),
    )


def _mma(instruction: TensorInstruction) -> RateProbe:
    """Sums of 16 rows by 8 columns, four of them in each thread of a warp."""
    lines = []
    for chain in range(_MMA_CHAINS):
        sums = ", ".join(f'"{instruction.constraint}"(sum[{4 * chain + i}])' for i in range(4))
        lines.append(
            f'      asm volatile("mma.sync.aligned.m16n8k{instruction.depth}.row.col.'
            f"{instruction.sums}.{instruction.kind}.{instruction.kind}.{instruction.sums} "
            f'{{%0, %1, %2, %3}}, {{%4, %4, %4, %4}}, {{%4, %4}}, {{%0, %1, %2, %3}};" '
            f': {sums} : "r"(word));'
        )
    warps = THREADS // 32
    products = 16 * 8 * instruction.depth * _MMA_CHAINS * _MMA_STEPS
    return RateProbe(
        unit=ArithmeticUnit.MMA,
        dtype=instruction.dtype,
        source=_MMA.format(
            threads=THREADS,
            symbol=f"{ArithmeticUnit.MMA}_{instruction.dtype}",
            type=instruction.sum_type,
            count=4 * _MMA_CHAINS,
            steps=_MMA_STEPS,
            multiply="\n".join(lines),
        ),
        word=instruction.word,
        round_flops=2 * warps * products,
        round_sum=instruction.depth * _MMA_STEPS,
    )


def _wgmma(instruction: TensorInstruction) -> RateProbe:
    """Sums of 64 rows by 256 columns, 128 of them in each thread of a warpgroup."""
    registers = ", ".join(f"%{number}" for number in range(_WGMMA_SUMS))
    sums = ", ".join(f'"{instruction.constraint}"(sum[{number}])' for number in range(_WGMMA_SUMS))
    # Add to the sums; then signs of the operands, and which of their axes lies along rows.
    last = {"s8": "1", "f16": "1, 1, 1, 0, 0", "bf16": "1, 1, 1, 0, 0"}.get(
        instruction.kind, "1, 1, 1"
    )
    multiply = (
        f'asm volatile("wgmma.mma_async.sync.aligned.m64n256k{instruction.depth}.'
        f"{instruction.sums}.{instruction.kind}.{instruction.kind} "
        f'{{{registers}}}, %{_WGMMA_SUMS}, %{_WGMMA_SUMS + 1}, {last};" '
        f': {sums} : "l"(left), "l"(right));'
    )
    left_bytes, right_bytes = 64 * 128, 256 * 128
    return RateProbe(
        unit=ArithmeticUnit.WGMMA,
        dtype=instruction.dtype,
        source=_WGMMA.format(
            threads=THREADS,
            symbol=f"{ArithmeticUnit.WGMMA}_{instruction.dtype}",
            words=(left_bytes + right_bytes) // 4,
            left_bytes=left_bytes,
            type=instruction.sum_type,
            count=_WGMMA_SUMS,
            steps=_WGMMA_STEPS,
            multiply=multiply,
        ),
        word=instruction.word,
        round_flops=2 * (THREADS // 128) * 64 * 256 * instruction.depth * _WGMMA_STEPS,
        round_sum=instruction.depth * _WGMMA_STEPS,
    )
