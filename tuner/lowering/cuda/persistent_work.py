"""CUDA C++ of what a block of a persistent product has to do, one piece after another: whole
tiles, or with stream-K parts of their depth too."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.lowering.cuda.persistent_epilogue import C_NAMES
from tuner.spaces.program.persistent import WARPGROUP, PersistentProduct
from tuner.spaces.program.stream_k import StreamK

PARTS = "tuner_parts"  # the parameter that has sums of parts of tiles


@dataclass(frozen=True, kw_only=True)
class WorkText:
    """The loops over pieces. `symbol` begins the names of its functions."""

    symbol: str
    product: PersistentProduct

    @property
    def sum(self) -> str:
        """The sums' type in C."""
        return C_NAMES[self.product.accumulator]

    @property
    def shares(self) -> StreamK | None:
        return self.product.stream_k

    @property
    def declared(self) -> str:
        """Functions that say which pieces a block has."""
        shared = self.shares
        if shared is None:
            return ""
        steps, whole = shared.steps, shared.waves * shared.blocks
        return f"""
/* Of all steps of shared tiles the first one of a block, and the block that has one. */
static __device__ __forceinline__ int {self.symbol}_begin(int block) {{
  return (int)((long long)block * {shared.units} / {shared.blocks});
}}
static __device__ __forceinline__ int {self.symbol}_owner(int unit) {{
  return (int)((((long long)unit + 1) * {shared.blocks} - 1) / {shared.units});
}}
struct {self.symbol}_piece {{ int tile, begin, end, part; }};
static __device__ __forceinline__ int {self.symbol}_pieces() {{
  const int begin = {self.symbol}_begin(blockIdx.x), end = {self.symbol}_begin(blockIdx.x + 1);
  return {shared.waves} + (end - 1) / {steps} - begin / {steps} + 1;
}}
static __device__ __forceinline__ {self.symbol}_piece {self.symbol}_piece_of(int number) {{
  if (number < {shared.waves}) return {{(int)blockIdx.x + number * {shared.blocks}, 0, {steps}, 0}};
  const int begin = {self.symbol}_begin(blockIdx.x), end = {self.symbol}_begin(blockIdx.x + 1);
  const int later = number - {shared.waves}, tile = begin / {steps} + later;
  return {{{whole} + tile, later == 0 ? begin % {steps} : 0, min({steps}, end - tile * {steps}), \
2 * (int)blockIdx.x + (later > 0)}};
}}
"""

    @property
    def parts_parameter(self) -> str:
        """The kernel's parameter for sums of parts."""
        return "" if self.shares is None else f", {self.sum} *__restrict__ {PARTS}"

    def each_part_sum(self, part: str, statement: str) -> str:
        """A statement on each sum of a thread, `sum`, and its place in memory, `place`.

        Those of a part of a tile lie thread by thread, so that a warp's lie together.
        """
        tile = self.product.tile
        count = tile.panels * 32
        own = "" if tile.alternating else f" + consumer * {tile.fragments * count * WARPGROUP}"
        size, step = tile.rows * tile.columns, WARPGROUP
        return f"""\
        {self.sum} *of_part = {PARTS} + (long long)({part}) * {size}{own} + thread;
#pragma unroll
        for (int fragment = 0; fragment < {tile.fragments}; ++fragment)
#pragma unroll
          for (int i = 0; i < {count}; ++i) {{
            {self.sum} &sum = sums[fragment][i];
            {self.sum} &place = of_part[(fragment * {count} + i) * {step}];
            {statement}
          }}"""

    @property
    def each_piece(self) -> str:
        """The beginning of the loop over pieces: `tile` is the tile."""
        if self.shares is None:
            return f"for (int tile = blockIdx.x; tile < {self.product.tiles}; tile += gridDim.x) {{"
        return f"""\
for (int number = 0, pieces = {self.symbol}_pieces(); number < pieces; ++number) {{
    const {self.symbol}_piece piece = {self.symbol}_piece_of(number);
    const int tile = piece.tile;"""

    @property
    def each_step(self) -> str:
        """The head of the loop over a piece's steps."""
        if self.shares is None:
            return f"for (int step = 0; step < {self.product.steps}; ++step)"
        return "for (int step = piece.begin; step < piece.end; ++step)"

    @property
    def is_later_step(self) -> str:
        """Whether a step is not a piece's first one."""
        return "step > 0" if self.shares is None else "step > piece.begin"

    @property
    def adds(self) -> str:
        """Whether the k-th multiplication of a step adds to sums that are there."""
        return "(step | k) != 0" if self.shares is None else "(step > piece.begin || k != 0)"

    @property
    def skipped(self) -> str:
        """Past the stages of a piece."""
        stages, steps = self.product.tile.stages, self.product.steps
        lines = [f"slot += {steps % stages};", f"phase ^= {steps // stages % 2};"]
        if self.shares is not None:
            lines = [
                "const int length = piece.end - piece.begin;",
                f"slot += length % {stages};",
                f"phase ^= length / {stages} % 2;",
            ]
        lines.append(f"if (slot >= {stages}) {{ slot -= {stages}; phase ^= 1; }}")
        return "\n".join(f"        {line}" for line in lines)
