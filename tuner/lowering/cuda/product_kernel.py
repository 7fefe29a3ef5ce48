"""What kernels of our own generator have in common: the order of tiles, and the epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tuner.lowering.cuda.persistent_epilogue import C_NAMES, axis_values, c_expression
from tuner.lowering.cuda.persistent_pixels import PixelText
from tuner.spaces.program.epilogues import KINDS, epilogue_tensors
from tuner.spaces.program.persistent import PersistentProduct, Side
from tuner.workload.expression import Tensor


@dataclass(frozen=True, kw_only=True)
class ProductKernel:
    """One product as text."""

    symbol: str  # of the kernel; begins the names of its functions
    product: PersistentProduct
    tensors: Mapping[str, Tensor]  # in the shapes in which the program addresses them

    @cached_property
    def _pointers(self) -> tuple[str, ...]:
        """Tensors that the epilogue reads."""
        epilogue = self.product.epilogue
        return () if epilogue is None else epilogue_tensors(epilogue, self.product.sums)

    @cached_property
    def _pixels(self) -> PixelText | None:
        pixels = self.product.pixels
        return None if pixels is None else PixelText(self.product, pixels, self.symbol)

    @property
    def headers(self) -> tuple[str, ...]:
        """Of the toolkit."""
        dtypes = {self.tensors[name].dtype for name in self._pointers}
        by_dtype = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}
        return tuple(header for dtype, header in by_dtype.items() if dtype in dtypes)

    @property
    def _sum(self) -> str:
        """The sums' type in C."""
        return C_NAMES[self.product.accumulator]

    @property
    def _result(self) -> str:
        """The type in which results are computed in C."""
        return KINDS[self.product.output_dtype].value

    @property
    def _place(self) -> str:
        """Where a tile lies: bands of tiles along one side, walked along the other."""
        product, tile = self.product, self.product.tile
        along_rows = product.bands.along is Side.LEFT
        long, short = ("m", "n") if along_rows else ("n", "m")
        extent, other = (
            (product.down, product.across) if along_rows else (product.across, product.down)
        )
        width = product.bands.width
        return f"""
struct {self.symbol}_place {{ int matrix, row, column; }};
static __device__ __forceinline__ {self.symbol}_place {self.symbol}_tile(int tile) {{
  const int matrix = tile / {extent * other}, within = tile % {extent * other};
  const int first = within / {width * other} * {width}, member = within % {width * other};
  const int size = min({extent} - first, {width});
  const int {long} = first + member % size, {short} = member / size;
  return {{matrix, m * {tile.rows}, n * {tile.columns}}};
}}
"""

    @property
    def _finish(self) -> str:
        """The output's value of a sum; what lies outside of it is not computed."""
        product, tile, pixels = self.product, self.product.tile, self._pixels
        if product.epilogue is None:
            return ""
        values = axis_values(product.batch, "matrix")
        values |= axis_values(product.rows, "row") if pixels is None else pixels.values
        values[product.columns.name] = "column"
        sums = Tensor(name=product.sums, shape=(), dtype=product.accumulator)
        tensors = {**self.tensors, product.sums: sums}
        value = c_expression(product.epilogue, product.sums, values, tensors)
        sides = (
            ("row", product.height, tile.rows),
            ("column", product.columns.extent, tile.columns),
        )
        outside = "".join(
            f"  if ({name} >= {extent}) return 0{'.0f' if self._result == 'float' else ''};\n"
            for name, extent, block in sides
            if extent % block and (pixels is None or name == "column")
        )
        if pixels is not None:
            outside = pixels.points + outside
        return f"""
static __device__ __forceinline__ {self._result} {self.symbol}_finish(\
{self._sum} sum, int matrix, int row, int column{self._declared_pointers}) {{
{outside}  return {value};
}}
"""

    @property
    def _declared_pointers(self) -> str:
        return "".join(
            f", const {C_NAMES[self.tensors[name].dtype]} *__restrict__ {name}"
            for name in self._pointers
        )
