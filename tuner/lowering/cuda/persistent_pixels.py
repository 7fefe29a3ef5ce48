"""CUDA C++ of persistent products whose rows are pixels: where boxes lie, copies, stores.

A fragment has a number, which is its box's among all boxes, row-major. `corner` is the
box's first point.
"""

from __future__ import annotations

from math import prod

from tuner.runtime.cuda_module import TensorMap
from tuner.spaces.program.persistent import (
    COLUMNS,
    PANEL_BYTES,
    ROW_BYTES,
    ROWS,
    PersistentProduct,
    Pixels,
)


class PixelText:
    """The text of one product's pixels. `symbol` begins the names of its functions."""

    def __init__(self, product: PersistentProduct, pixels: Pixels, symbol: str) -> None:
        self._product, self._pixels, self._symbol = product, pixels, symbol
        self._boxes = pixels.boxes(product.rows)
        self._places = range(len(product.rows))

    def maps(self) -> tuple[TensorMap, TensorMap, TensorMap]:
        """Of the left operand, the right one and the output."""
        product, box, strides = self._product, self._pixels.box, self._pixels.strides
        columns, depth = product.columns.extent, product.depth.extent
        points = tuple(axis.extent for axis in product.rows)
        # The left operand may be larger or smaller than the output, by its padding.
        return (
            TensorMap(
                buffer=product.left.tensor,
                shape=(*self._pixels.extents, depth),
                box=(*box, product.step),
                steps=(*strides, 1) if max(strides) > 1 else (),
            ),
            TensorMap(
                buffer=product.right.tensor,
                shape=(self._pixels.taps, depth, columns),
                box=(1, product.step, COLUMNS),
            ),
            TensorMap(
                buffer=product.output.tensor,
                shape=(*points, columns),
                box=(*box, product.strip),
            ),
        )

    @property
    def corner(self) -> str:
        """The function that says where a fragment begins."""
        fields = ", ".join(f"p{place}" for place in self._places)
        values = ", ".join(
            f"{self._corner('fragment', place)} * {self._pixels.box[place]}"
            for place in self._places
        )
        return f"""
struct {self._symbol}_corner {{ int {fields}; }};
static __device__ __forceinline__ {self._symbol}_corner {self._symbol}_corner_of(int fragment) {{
  return {{{values}}};
}}
"""

    def _corner(self, fragment: str, place: int) -> str:
        """The number of a fragment's box along an axis; beyond the last along the first one."""
        inner = prod(self._boxes[place + 1 :])
        value = fragment if inner == 1 else f"{fragment} / {inner}"
        return value if place == 0 else f"{value} % {self._boxes[place]}"

    @property
    def points(self) -> str:
        """The value of each axis at a row: `p0`, `p1` and so on; zero is returned outside."""
        box, rows, tile = self._pixels.box, self._product.rows, self._product.tile
        lines = [f"  const int fragment = row / {ROWS}, point = row % {ROWS};\n"]
        for place in self._places:
            inner = prod(box[place + 1 :])
            within = f"point / {inner}" if place == 0 else f"point / {inner} % {box[place]}"
            corner = self._corner("fragment", place)
            lines.append(f"  const int p{place} = {corner} * {box[place]} + {within};\n")
            overrun = place == 0 and self._product.height % tile.rows
            if rows[place].extent % box[place] or overrun:
                lines.append(f"  if (p{place} >= {rows[place].extent}) return 0;\n")
        return "".join(lines)

    @property
    def values(self) -> dict[str, str]:
        """The names of `points` by axis."""
        return {axis.name: f"p{place}" for place, axis in enumerate(self._product.rows)}

    @property
    def tile_begins(self) -> str:
        """Where a tile's fragments begin."""
        return "\n".join(
            f"    const {self._symbol}_corner corner{number} = "
            f"{self._symbol}_corner_of(at.row / {ROWS} + {number});"
            for number in range(self._product.tile.rows // ROWS)
        )

    def loads(self) -> str:
        """Copies of one stage: a point of the window, and a part of the depth."""
        product, tile = self._product, self._product.tile
        lines = [
            f"const int chunk = step % {product.chunks} * {product.step}, "
            f"tap = step / {product.chunks};"
        ]
        for number in range(tile.rows // ROWS):
            places = ", ".join(
                f"corner{number}.p{place}{self._scale(place)}{self._shift(place)}"
                for place in reversed(self._places)
            )
            to = f"to + {number * PANEL_BYTES}"
            lines.append(f"tuner_load({to}, left, chunk, {places}, filled);")
        for panel in range(tile.panels):
            to = f"to + {tile.rows * ROW_BYTES + panel * PANEL_BYTES}"
            column = f"at.column + {panel * COLUMNS}"
            lines.append(f"tuner_load({to}, right, {column}, chunk, tap, filled);")
        return "\n".join(f"      {line}" for line in lines)

    def _scale(self, place: int) -> str:
        stride = self._pixels.strides[place]
        return f" * {stride}" if stride > 1 else ""

    def _shift(self, place: int) -> str:
        """How far the window's point moves an axis."""
        text, window = "", self._pixels.window
        for number, step in enumerate(self._pixels.steps[place]):
            inner = prod(axis.extent for axis in window[number + 1 :])
            point = "tap" if inner == 1 else f"tap / {inner}"
            if number > 0:
                point = f"{point} % {window[number].extent}"
            if step:
                text += f" + {step} * ({point})"
        offset = self._pixels.offsets[place]
        return text + (f" + {offset}" if offset > 0 else f" - {-offset}" if offset else "")

    def stored_at(self, first: str) -> str:
        """The places of a fragment's strip behind its column, innermost first."""
        corner = f"{self._symbol}_corner_of({first} / {ROWS})"
        return "".join(f", {corner}.p{place}" for place in reversed(self._places))
