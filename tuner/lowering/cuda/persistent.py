"""CUDA C++ of persistent products: copies of boxes, barriers of shared memory, and warps of
different tasks. The text is made from the same program that everything else reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tuner.lowering.cuda.persistent_combine import CombineText
from tuner.lowering.cuda.persistent_consumer import ConsumerText
from tuner.lowering.cuda.persistent_source import COMMON, INSTRUCTIONS, multiplication
from tuner.lowering.cuda.persistent_store import StoreText
from tuner.lowering.cuda.persistent_work import WorkText
from tuner.lowering.cuda.product_kernel import ProductKernel
from tuner.runtime.cuda_module import Launch, TensorMap
from tuner.spaces.program.persistent import (
    BARRIER_BYTES,
    COLUMNS,
    PANEL_BYTES,
    ROW_BYTES,
    ROWS,
    WARPGROUP,
    Matrix,
)
from tuner.workload.expression import Tensor


@dataclass(frozen=True, kw_only=True)
class PersistentKernel(ProductKernel):
    """One persistent product as text and as launches."""

    instructions = (COMMON, INSTRUCTIONS)  # what the text calls

    # --- launch

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Of the kernel, and with stream-K of the one that adds up parts."""
        product, shares = self.product, self.product.stream_k
        parts = tuple(tensor.name for tensor in self.workspace)
        first = Launch(
            kernel=self.symbol,
            arguments=(*self._pointers, *parts),
            grid=(product.grid, 1, 1),
            block=(product.tile.threads, 1, 1),
            shared_bytes=product.shared_bytes,
            maps=self._maps,
        )
        if shares is None:
            return (first,)
        second = Launch(
            kernel=f"{self.symbol}_combine",
            arguments=first.arguments,
            grid=(shares.shared, 1, 1),
            block=(self._combine.warpgroups * WARPGROUP, 1, 1),
            shared_bytes=self._combine.shared_bytes,
            maps=self._maps[-1:],
        )
        return first, second

    @property
    def workspace(self) -> tuple[Tensor, ...]:
        """Memory between the launches: sums of parts of tiles."""
        product, shares = self.product, self.product.stream_k
        if shares is None:
            return ()
        shape = (shares.parts, product.tile.rows, product.tile.columns)
        name = f"{self.symbol}_parts"
        return (Tensor(name=name, shape=shape, dtype=product.accumulator),)

    @property
    def _maps(self) -> tuple[TensorMap, ...]:
        product, tile = self.product, self.product.tile
        if self._pixels is not None:
            return self._pixels.maps()
        rows, columns, depth = product.height, product.columns.extent, product.depth.extent
        operands = [(product.left, (rows, depth), (tile.rows, product.step))]
        if product.right.transposed:
            operands.append((product.right, (columns, depth), (tile.columns, product.step)))
        else:
            operands.append((product.right, (depth, columns), (product.step, COLUMNS)))
        left, right = (
            replace(self._map(*operand), rounded=factor.is_rounded)
            for operand, factor in zip(operands, product.factors, strict=True)
        )
        return left, right, self._map(product.output, (rows, columns), (ROWS, product.strip))

    def _map(self, matrix: Matrix, shape: tuple[int, int], box: tuple[int, int]) -> TensorMap:
        batched = matrix.batched
        return TensorMap(
            buffer=matrix.tensor,
            shape=(self.product.matrices, *shape) if batched else shape,
            box=(1, *box) if batched else box,
        )

    # --- text

    @property
    def text(self) -> str:
        product, tile = self.product, self.product.tile
        multiply = multiplication(
            tile.panels, product.factors, transposed=product.right.transposed
        ).replace("tuner_multiply(", f"{self.symbol}_multiply(")
        corner = "" if self._pixels is None else self._pixels.corner
        consumer = ConsumerText(
            symbol=self.symbol,
            product=product,
            work=self._work,
            store=self._store,
            parameters=self._declared_pointers,
        )
        parts = (multiply, self._place, self._work.declared, corner, self._finish, self._produce)
        return "".join((*parts, consumer.kernel, self._combine.kernel))

    @cached_property
    def _work(self) -> WorkText:
        return WorkText(symbol=self.symbol, product=self.product)

    @cached_property
    def _store(self) -> StoreText:
        return StoreText(
            symbol=self.symbol,
            product=self.product,
            pixels=self._pixels,
            pointers=self._pointers,
        )

    @cached_property
    def _combine(self) -> CombineText:
        return CombineText(
            symbol=self.symbol,
            product=self.product,
            work=self._work,
            store=self._store,
            parameters=self._declared_pointers,
        )

    @property
    def _produce(self) -> str:
        """What the producer's thread does."""
        tile = self.product.tile
        begins = "" if self._pixels is None else f"{self._pixels.tile_begins}\n"
        return f"""
static __device__ __forceinline__ void {self.symbol}_produce(\
const tuner_map *left, const tuner_map *right, unsigned ring, unsigned full, unsigned empty) {{
  int slot = 0;
  unsigned phase = 1;
  {self._work.each_piece}
    const {self.symbol}_place at = {self.symbol}_tile(tile);
{begins}#pragma unroll 1 /* more takes more registers than a producer has */
    {self._work.each_step} {{
      const unsigned filled = full + slot * {BARRIER_BYTES}, to = ring + slot * {tile.stage_bytes};
      tuner_wait(empty + slot * {BARRIER_BYTES}, phase);
      tuner_expect(filled, {tile.stage_bytes});
{self._loads}
      if (++slot == {tile.stages}) {{ slot = 0; phase ^= 1; }}
    }}
  }}
}}
"""

    @property
    def _loads(self) -> str:
        """Copies of one stage."""
        product, tile = self.product, self.product.tile
        if self._pixels is not None:
            return self._pixels.loads()
        right = f"to + {tile.rows * ROW_BYTES}"
        lines = [_load(product.left, "left", "to", f"step * {product.step}, at.row")]
        if product.right.transposed:
            lines.append(_load(product.right, "right", right, f"step * {product.step}, at.column"))
        else:
            lines += [
                _load(
                    product.right,
                    "right",
                    f"{right} + {panel * PANEL_BYTES}",
                    f"at.column + {panel * COLUMNS}, step * {product.step}",
                )
                for panel in range(tile.panels)
            ]
        return "\n".join(lines)


def _load(matrix: Matrix, name: str, to: str, place: str) -> str:
    """A copy of a box. `place`: of its first element, innermost dimension first."""
    last = ", at.matrix" if matrix.batched else ""
    return f"      tuner_load({to}, {name}, {place}{last}, filled);"
