"""CUDA C++ of how a persistent product's sums become its output: the epilogue, and strips in
shared memory that the tensor memory accelerator stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.lowering.cuda.persistent_epilogue import C_NAMES
from tuner.lowering.cuda.persistent_pixels import PixelText
from tuner.spaces.program.epilogues import KINDS
from tuner.spaces.program.persistent import (
    PANEL_BYTES,
    ROW_BYTES,
    ROWS,
    STRIPS,
    PersistentProduct,
)
from tuner.workload.dtypes import DTYPE_BYTES


@dataclass(frozen=True, kw_only=True)
class StoreText:
    """The text of what a thread does with its `sums` of the tile `at`."""

    symbol: str  # of the kernel; begins the names of its functions
    product: PersistentProduct
    pixels: PixelText | None
    pointers: Sequence[str]  # tensors that the epilogue reads

    @property
    def sum(self) -> str:
        """The sums' type in C."""
        return C_NAMES[self.product.accumulator]

    @property
    def sums_of_fragment(self) -> int:
        """Sums of a fragment that a thread has."""
        return self.product.tile.panels * 32

    @property
    def _result(self) -> str:
        """The type in which results are computed in C."""
        return KINDS[self.product.output_dtype].value

    def own_rows(self, scale: int) -> str:
        """Where a consumer's rows of a tile begin."""
        tile = self.product.tile
        return "" if tile.alternating else f" + consumer * {ROWS * tile.fragments * scale}"

    @property
    def text(self) -> str:
        """Sums through shared memory, a strip of the output at a time."""
        product, tile = self.product, self.product.tile
        strips = tile.columns // product.strip
        matrix = ", at.matrix" if product.output.batched else ""
        rows = f", first{matrix}" if self.pixels is None else self.pixels.stored_at("first")
        return f"""\
#pragma unroll
      for (int fragment = 0; fragment < {tile.fragments}; ++fragment) {{
        const int first = at.row{self.own_rows(1)} + fragment * {ROWS};
#pragma unroll
        for (int part = 0; part < {strips}; ++part) {{
          const unsigned place = strip + half * {PANEL_BYTES};
          const int left_column = at.column + part * {product.strip};
{self._finished}
          if (thread == 0) tuner_stores_read<{STRIPS - 1}>();
          tuner_warpgroup_barrier(consumer + 1);
{self._put}
          tuner_written();
          tuner_warpgroup_barrier(consumer + 1);
          if (thread == 0) tuner_store(&output, left_column{rows}, place);
          half = half + 1 == {STRIPS} ? 0 : half + 1;
        }}
      }}"""

    @property
    def _finished(self) -> str:
        """The epilogue, on the thread's sums. Which they are: PTX ISA, wgmma, "Accumulator"."""
        count = self.product.strip // 2
        held = f"sums[fragment] + part * {count}"
        if self.product.epilogue is None:
            return f"          {self.sum} *values = {held};"
        pointers = "".join(f", {name}" for name in self.pointers)
        # In the place of the sums where both are of a type.
        declared, given = (
            (f"{self.sum} *values = {held};", "values")
            if self.sum == self._result
            else (
                f"{self.sum} *given = {held};\n          {self._result} values[{count}];",
                "given",
            )
        )
        return f"""\
          {declared}
#pragma unroll
          for (int i = 0; i < {count}; ++i) {{
            const int row = first + thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
            const int column = left_column + i / 4 * 8 + lane % 4 * 2 + i % 2;
            values[i] = {self.symbol}_finish({given}[i], at.matrix, row, column{pointers});
          }}"""

    @property
    def _put(self) -> str:
        """Values to a strip, whose pieces of 16 bytes are permuted by their rows."""
        if DTYPE_BYTES[self.product.output_dtype] == 1:
            return f"""\
          const unsigned line = thread / 32 * 16 + lane / 4;
#pragma unroll
          for (int i = 0; i < {self.product.strip // 4}; ++i) {{
            const unsigned row = line + i % 2 * 8, piece = i / 4;
            tuner_put_bytes(place + row * {ROW_BYTES} + (piece ^ row % 8) * 16 + i / 2 % 2 * 8 + \
lane % 4 * 2, values[2 * i], values[2 * i + 1]);
          }}"""
        if DTYPE_BYTES[self.product.output_dtype] == 2:
            pair = f"tuner_pair_{self.product.output_dtype}"
            pairs = ", ".join(f"{pair}(v[{2 * i}], v[{2 * i + 1}])" for i in range(4))
            return f"""\
          const unsigned line = thread / 32 * 16 + lane % 16;
#pragma unroll
          for (int square = 0; square < 4; ++square) {{
            const float *v = values + square * 8;
            tuner_put(place + line * {ROW_BYTES} + \
((square * 2u + lane / 16) ^ line % 8) * 16, {pairs});
          }}"""
        return f"""\
          const unsigned line = thread / 32 * 16 + lane / 4;
#pragma unroll
          for (int i = 0; i < 8; ++i) {{
            const unsigned row = line + i % 2 * 8, piece = i / 2 * 2u + lane % 4 / 2;
            tuner_put(place + row * {ROW_BYTES} + (piece ^ row % 8) * 16 + lane % 2 * 8, \
values[2 * i], values[2 * i + 1]);
          }}"""
