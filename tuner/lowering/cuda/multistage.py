"""CUDA C++ of multistage products: all warps of a block copy into stages of shared memory,
whose rows of 128 bytes have permuted pieces, and multiply what was copied before."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.lowering.cuda.multistage_source import INSTRUCTIONS, multiplication
from tuner.lowering.cuda.persistent_source import COMMON
from tuner.lowering.cuda.persistent_store import StoreText
from tuner.lowering.cuda.product_kernel import ProductKernel
from tuner.runtime.cuda_module import Launch
from tuner.spaces.program.multistage import threads_of
from tuner.spaces.program.persistent import (
    COLUMNS,
    PANEL_BYTES,
    ROW_BYTES,
    ROWS,
    STEP_BYTES,
    WARPGROUP,
    Matrix,
)
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Tensor

PIECE_BYTES = 16  # of a row, that one copy brings
PIECES = ROW_BYTES // PIECE_BYTES


@dataclass(frozen=True, kw_only=True)
class MultistageKernel(ProductKernel):
    """One multistage product as text and as a launch."""

    instructions = (COMMON, INSTRUCTIONS)  # what the text calls

    @property
    def launches(self) -> tuple[Launch, ...]:
        product = self.product
        operands = (product.left.tensor, product.right.tensor, product.output.tensor)
        return (
            Launch(
                kernel=self.symbol,
                arguments=(*operands, *self._pointers),
                grid=(product.grid, 1, 1),
                block=(self._threads, 1, 1),
                shared_bytes=product.shared_bytes,
            ),
        )

    @property
    def workspace(self) -> tuple[Tensor, ...]:
        return ()

    @property
    def text(self) -> str:
        multiply = multiplication(self.symbol, self.product.factors)
        return "".join((multiply, self._place, self._finish, self._copies, self._kernel))

    @property
    def _threads(self) -> int:
        return threads_of(self.product.tile)

    @property
    def _copies(self) -> str:
        """The function by which a block's threads ask for one stage."""
        product, tile = self.product, self.product.tile
        depth = product.depth.extent
        rows = self._copy("left", 0, tile.rows, "at.row", product.height, depth)
        if product.right.transposed:
            columns = product.columns.extent
            right = self._copy(
                "right", tile.rows * ROW_BYTES, tile.columns, "at.column", columns, depth
            )
        else:
            right = self._copy_panels()
        return f"""
static __device__ __forceinline__ void {self.symbol}_copy(unsigned char *stage, \
const unsigned char *left, const unsigned char *right, {self.symbol}_place at, int step) {{
{rows}
{right}
  tuner_copies_end();
}}
"""

    def _copy(self, name: str, offset: int, count: int, first: str, extent: int, depth: int) -> str:
        """Copies of rows whose depth is last. What lies outside is zeros."""
        size, each = self._itemsize, PIECE_BYTES // self._itemsize
        return f"""\
#pragma unroll
  for (int i = 0; i < {-(-count * PIECES // self._threads)}; ++i) {{
    const int number = i * {self._threads} + threadIdx.x;
    const int row = number / {PIECES}, piece = number % {PIECES};
    const int line = {first} + row, k = step * {self.product.step} + piece * {each};
    const bool inside = line < {extent} && k < {depth};
    tuner_copy(stage + {offset} + row * {ROW_BYTES} + (piece ^ row % 8) * {PIECE_BYTES}, \
{name} + (inside ? ((long long)line * {depth} + k) * {size} : 0), inside ? {PIECE_BYTES} : 0);
  }}"""

    def _copy_panels(self) -> str:
        """Copies of a right operand whose columns are last, a panel of 64 beside another."""
        product, tile = self.product, self.product.tile
        columns, depth, offset = (
            product.columns.extent,
            product.depth.extent,
            tile.rows * ROW_BYTES,
        )
        size, each, across = self._itemsize, PIECE_BYTES // self._itemsize, tile.panels * PIECES
        return f"""\
#pragma unroll
  for (int i = 0; i < {-(-product.step * across // self._threads)}; ++i) {{
    const int number = i * {self._threads} + threadIdx.x;
    const int row = number / {across}, panel = number % {across} / {PIECES};
    const int piece = number % {PIECES}, column = at.column + number % {across} * {each};
    const int k = step * {product.step} + row;
    const bool inside = column < {columns} && k < {depth};
    tuner_copy(stage + {offset} + panel * {PANEL_BYTES} + row * {ROW_BYTES} + \
(piece ^ row % 8) * {PIECE_BYTES}, right + (inside ? ((long long)k * {columns} + column) * {size} \
: 0), inside ? {PIECE_BYTES} : 0);
  }}"""

    @property
    def _itemsize(self) -> int:
        return self.product.factors[0].itemsize

    @property
    def _kernel(self) -> str:
        product, tile = self.product, self.product.tile
        store = MultistageStore(
            symbol=self.symbol, product=product, pixels=None, pointers=self._pointers
        )
        return f"""
extern "C" __global__ void __launch_bounds__({self._threads}, 1) {self.symbol}(\
const unsigned char *__restrict__ of_left, const unsigned char *__restrict__ of_right, \
unsigned char *__restrict__ of_output{self._declared_pointers}) {{
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned ring = tuner_shared(memory);
  const int consumer = threadIdx.x / {WARPGROUP}, thread = threadIdx.x % {WARPGROUP};
  const int lane = threadIdx.x % 32;
  const {self.symbol}_place at = {self.symbol}_tile(blockIdx.x);
  const unsigned char *left = of_left + {self._matrix(product.left, product.height)};
  const unsigned char *right = of_right + {self._matrix(product.right, product.columns.extent)};
  {store.sum} sums[{tile.fragments}][{store.sums_of_fragment}] = {{}};
#pragma unroll
  for (int step = 0; step < {tile.stages - 1}; ++step) {{
    if (step < {product.steps}) \
{self.symbol}_copy(memory + step * {tile.stage_bytes}, left, right, at, step);
    else tuner_copies_end();
  }}
  int slot = 0, next = {tile.stages - 1};
#pragma unroll 1
  for (int step = 0; step < {product.steps}; ++step) {{
    asm volatile("cp.async.wait_group {tile.stages - 2};" ::: "memory");
    __syncthreads(); /* all have copied this stage, and read the one before */
    if (step + {tile.stages - 1} < {product.steps}) {self.symbol}_copy(\
memory + next * {tile.stage_bytes}, left, right, at, step + {tile.stages - 1});
    else tuner_copies_end();
    const unsigned rows = ring + slot * {tile.stage_bytes}{store.own_rows(ROW_BYTES)};
    const unsigned columns = ring + slot * {tile.stage_bytes} + {tile.rows * ROW_BYTES};
{self._multiply}
    slot = slot + 1 == {tile.stages} ? 0 : slot + 1;
    next = next + 1 == {tile.stages} ? 0 : next + 1;
  }}
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads(); /* strips come in the place of stages */
  const unsigned strip = ring + consumer * {PANEL_BYTES};
  unsigned char *const strip_bytes = memory + consumer * {PANEL_BYTES};
{store.text}
}}
"""

    def _matrix(self, matrix: Matrix, lines: int) -> str:
        """Bytes before a matrix of a batch."""
        if not matrix.batched:
            return "0"
        return f"(long long)at.matrix * {lines * self.product.depth.extent * self._itemsize}"

    @property
    def _multiply(self) -> str:
        """Multiplications of a stage: fragments of both operands, 32 bytes of the depth each."""
        tile = self.product.tile
        if self.product.right.transposed:
            take, place = "tuner_take", self._taken_columns
        else:
            take, place = "tuner_take_turned", self._taken_depths
        return f"""\
#pragma unroll
    for (int k = 0; k < {ROW_BYTES // STEP_BYTES}; ++k) {{
      unsigned a[{tile.fragments}][4];
#pragma unroll
      for (int fragment = 0; fragment < {tile.fragments}; ++fragment) {{
        const int row = fragment * {ROWS} + thread / 32 * 16 + lane % 16;
        tuner_take(a[fragment], rows + row * {ROW_BYTES} + \
((k * 2 + lane / 16) ^ row % 8) * {PIECE_BYTES});
      }}
#pragma unroll
      for (int group = 0; group < {tile.columns // 16}; ++group) {{
        unsigned b[4];
{place}
        {take}(b, columns + from);
#pragma unroll
        for (int fragment = 0; fragment < {tile.fragments}; ++fragment) {{
          {self.symbol}_multiply(sums[fragment] + group * 8, a[fragment], b);
          {self.symbol}_multiply(sums[fragment] + group * 8 + 4, a[fragment], b + 2);
        }}
      }}
    }}"""

    @property
    def _taken_columns(self) -> str:
        """Where a lane's row of a square is, of columns whose depth is last."""
        return f"""\
        const int line = group * 16 + lane % 8 + lane / 16 * 8;
        const int piece = k * 2 + lane / 8 % 2;
        const int from = line * {ROW_BYTES} + (piece ^ line % 8) * {PIECE_BYTES};"""

    @property
    def _taken_depths(self) -> str:
        """Likewise, of depths whose columns are last."""
        return f"""\
        const int line = k * 16 + lane % 16, piece = group % {COLUMNS // 16} * 2 + lane / 16;
        const int from = group / {COLUMNS // 16} * {PANEL_BYTES} + line * {ROW_BYTES} + \
(piece ^ line % 8) * {PIECE_BYTES};"""


class MultistageStore(StoreText):
    """Sums through shared memory, from where threads store pieces of rows."""

    @property
    def text(self) -> str:
        product, tile = self.product, self.product.tile
        columns = product.columns.extent
        size = DTYPE_BYTES[product.output_dtype]
        matrix = product.height * columns * size
        batch = f"(long long)at.matrix * {matrix} + " if product.output.batched else ""
        return f"""\
#pragma unroll
  for (int fragment = 0; fragment < {tile.fragments}; ++fragment) {{
    const int first = at.row{self.own_rows(1)} + fragment * {ROWS};
#pragma unroll
    for (int part = 0; part < {tile.columns // product.strip}; ++part) {{
      const unsigned place = strip;
      const int left_column = at.column + part * {product.strip};
{self._finished}
{self._put}
      tuner_warpgroup_barrier(consumer + 1);
#pragma unroll
      for (int i = 0; i < {ROWS * PIECES // WARPGROUP}; ++i) {{
        const int number = i * {WARPGROUP} + thread, line = number / {PIECES};
        const int piece = number % {PIECES}, column = left_column + piece * {PIECE_BYTES // size};
        if (first + line < {product.height} && column < {columns})
          *(int4 *)(of_output + {batch}((long long)(first + line) * {columns} + column) * {size}) \
= *(const int4 *)(strip_bytes + line * {ROW_BYTES} + (piece ^ line % 8) * {PIECE_BYTES});
      }}
      tuner_warpgroup_barrier(consumer + 1);
    }}
  }}"""

    @property
    def _put(self) -> str:
        if DTYPE_BYTES[self.product.output_dtype] != 2:
            return super()._put
        pair = f"tuner_pair_{self.product.output_dtype}"
        return f"""\
      const unsigned line = thread / 32 * 16 + lane / 4;
#pragma unroll
      for (int i = 0; i < {self.product.strip // 4}; ++i) {{
        const unsigned row = line + i % 2 * 8, piece = i / 2;
        tuner_put_word(place + row * {ROW_BYTES} + (piece ^ row % 8) * {PIECE_BYTES} + \
lane % 4 * 4, {pair}(values[2 * i], values[2 * i + 1]));
      }}"""
