"""CUDA C++ of a persistent product's kernel, and of its consumers: warpgroups that multiply
what the producer copies, and store what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.lowering.cuda.persistent_store import StoreText
from tuner.lowering.cuda.persistent_work import WorkText
from tuner.spaces.program.persistent import (
    BARRIER_BYTES,
    PANEL_BYTES,
    ROW_BYTES,
    STEP_BYTES,
    STRIPS,
    WARPGROUP,
    PersistentProduct,
)
from tuner.target.cuda import WARP

# Registers of a producer's and of a consumer's thread, by the number of consumers: what a
# block has in all, in steps of 8. None where the compiler's own number is enough.
REGISTERS: Mapping[int, tuple[int, int] | None] = {1: None, 2: (40, 232)}
FIRST_TURN = 3  # number of the hardware barrier of the first consumer's turn


@dataclass(frozen=True, kw_only=True)
class ConsumerText:
    """The text of one product's kernel."""

    symbol: str  # of the kernel; begins the names of its functions
    product: PersistentProduct
    work: WorkText
    store: StoreText
    parameters: str  # of tensors that the epilogue reads

    @property
    def kernel(self) -> str:
        """The kernel, with what consumers do."""
        tile = self.product.tile
        arrivals = WARPGROUP // WARP * (1 if tile.alternating else tile.consumers)
        registers = REGISTERS[tile.consumers]
        fewer, more = (
            ("", "")
            if registers is None
            else (
                f"tuner_fewer_registers<{registers[0]}>();",
                f"tuner_more_registers<{registers[1]}>();",
            )
        )
        ring = tile.stages * tile.stage_bytes
        strips = tile.consumers * STRIPS * PANEL_BYTES
        return f"""
extern "C" __global__ void __launch_bounds__({tile.threads}, 1) {self.symbol}(\
const __grid_constant__ tuner_map left, const __grid_constant__ tuner_map right, \
const __grid_constant__ tuner_map output{self.parameters}{self.work.parts_parameter}) {{
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned ring = tuner_shared(memory), strips = ring + {ring};
  const unsigned full = strips + {strips}, empty = full + {tile.stages * BARRIER_BYTES};
  if (threadIdx.x == 0) {{
    for (int stage = 0; stage < {tile.stages}; ++stage) {{
      tuner_barrier(full + stage * {BARRIER_BYTES}, 1);
      tuner_barrier(empty + stage * {BARRIER_BYTES}, {arrivals});
    }}
    tuner_barriers_ready();
  }}
  __syncthreads();
  const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / {WARPGROUP}, 0);
  if (warpgroup == 0) {{
    {fewer}
    if (threadIdx.x == 0) {self.symbol}_produce(&left, &right, ring, full, empty);
  }} else {{
    {more}
    const int consumer = warpgroup - 1, thread = threadIdx.x % {WARPGROUP};
    const int lane = threadIdx.x % 32;
    const unsigned strip = strips + consumer * {STRIPS * PANEL_BYTES};
    {self._declared_sums}
    int slot = 0, half = 0;
    unsigned phase = 0;
    {self._begin}
    {self.work.each_piece}
{self._skip}
      const {self.symbol}_place at = {self.symbol}_tile(tile);
      {self._before}
#pragma unroll 1
      {self.work.each_step} {{
        const unsigned rows = ring + slot * {tile.stage_bytes}{self.store.own_rows(ROW_BYTES)};
        const unsigned columns = ring + slot * {tile.stage_bytes} + {tile.rows * ROW_BYTES};
        tuner_wait(full + slot * {BARRIER_BYTES}, phase);
{self._multiply}
        if (++slot == {tile.stages}) {{ slot = 0; phase ^= 1; }}
      }}
{self._last_stage}
      {self._pass_on}
{self._stored}
    }}
    if (thread == 0) tuner_stores_read<0>();
  }}
}}
"""

    @property
    def _declared_sums(self) -> str:
        size = f"[{self.product.tile.fragments}][{self.store.sums_of_fragment}]"
        parts = f", parts{size}" if self.product.is_summed_short else ""
        return f"{self.work.sum} sums{size}{parts};"

    @property
    def _before(self) -> str:
        """What is there when a tile begins."""
        if not self.product.is_summed_short:
            return "int before = slot;"
        return self._each_fragment(self._each_sum("sums[fragment][i] = 0;"))

    @property
    def _begin(self) -> str:
        """Alternating consumers multiply in turn: the first one begins."""
        if not self.product.tile.alternating:
            return ""
        return f"int turn = 0;\n    if (consumer == 1) tuner_pass_turn({FIRST_TURN});"

    @property
    def _skip(self) -> str:
        """Past the stages of tiles that are the other consumer's.

        A barrier's parity tells a phase from the one before alone. So a consumer must not
        wait for a stage before the other one has seen all of its own.
        """
        if not self.product.tile.alternating:
            return ""
        return f"""\
      const bool skipped = turn != consumer;
      turn ^= 1;
      if (skipped) {{
{self.work.skipped}
        continue;
      }}
      tuner_wait_for_turn({FIRST_TURN} + consumer);"""

    @property
    def _pass_on(self) -> str:
        """The other consumer multiplies while this one stores."""
        tile = self.product.tile
        return f"tuner_pass_turn({FIRST_TURN} + 1 - consumer);" if tile.alternating else ""

    @property
    def _stored(self) -> str:
        """What becomes of the sums: those of a part of the depth go to memory as they are."""
        if self.work.shares is None:
            return self.store.text
        return f"""\
      if (piece.begin > 0 || piece.end < {self.product.steps}) {{
{self.work.each_part_sum("piece.part", "place = sum;")}
        continue;
      }}
{self.store.text}"""

    def _each_sum(self, statement: str) -> str:
        count = self.store.sums_of_fragment
        return f'{{ _Pragma("unroll") for (int i = 0; i < {count}; ++i) {statement} }}'

    def _each_fragment(self, statement: str) -> str:
        return (
            "#pragma unroll\n        for (int fragment = 0; fragment < "
            f"{self.product.tile.fragments}; ++fragment) {statement}"
        )

    @property
    def _multiply(self) -> str:
        """Multiplications of a stage, and the end of what is read.

        Those of the stage before are done afterwards. Short sums are taken at once, and
        added to the others in float32.
        """
        if not self.product.is_summed_short:
            return f"""\
{self._multiplications("sums", self.work.adds)}
        tuner_multiplied<1>();
        if ({self.work.is_later_step}) {self._release("before")}
        before = slot;"""
        added = self._each_sum("sums[fragment][i] += parts[fragment][i];")
        return f"""\
{self._multiplications("parts", "k != 0")}
        tuner_multiplied<0>();
{self._keep("parts")}
        {self._release("slot")}
{self._each_fragment(added)}"""

    @property
    def _last_stage(self) -> str:
        """The end of a tile's last multiplications."""
        if self.product.is_summed_short:
            return ""
        return f"""\
      tuner_multiplied<0>();
{self._keep("sums")}
      {self._release("before")}"""

    def _keep(self, sums: str) -> str:
        return self._each_fragment(f"tuner_keep({sums}[fragment]);")

    def _multiplications(self, sums: str, adds: str) -> str:
        product = self.product
        # As deep as an instruction: 32 bytes of a row, or 16 rows.
        columns = (
            f"columns + k * {STEP_BYTES}, 1"
            if product.right.transposed
            else f"columns + k * {16 * ROW_BYTES}, {PANEL_BYTES}"
        )
        call = (
            f"{self.symbol}_multiply({sums}[fragment], "
            f"tuner_operand(rows + fragment * {PANEL_BYTES} + k * {STEP_BYTES}, 1), "
            f"tuner_operand({columns}), {adds});"
        )
        return f"""\
{self._keep(sums)}
        tuner_multiplications_begin();
#pragma unroll
        for (int k = 0; k < {ROW_BYTES // STEP_BYTES}; ++k) {{
{self._each_fragment(call)}
        }}
        tuner_multiplications_end();
{self._keep(sums)}"""

    def _release(self, slot: str) -> str:
        """A warp has read a stage."""
        return f"{{ if (lane == 0) tuner_arrive(empty + {slot} * {BARRIER_BYTES}); }}"
