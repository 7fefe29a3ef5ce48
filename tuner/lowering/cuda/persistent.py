"""CUDA C++ of persistent products, which TVM's code generator cannot write.

It has no barriers of shared memory, no copies of boxes and no warps of different tasks.
The text is made from the same program that everything else reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.lowering.cuda.persistent_epilogue import axis_values, c_expression
from tuner.lowering.cuda.persistent_pixels import PixelText
from tuner.lowering.cuda.persistent_source import INSTRUCTIONS, PACKINGS, multiplication
from tuner.lowering.passes.extremes import SOURCES as EXTREMES
from tuner.runtime.cuda_module import Launch, TensorMap
from tuner.spaces.program.epilogues import KINDS, epilogue_tensors
from tuner.spaces.program.persistent import (
    BARRIER_BYTES,
    COLUMNS,
    PANEL_BYTES,
    ROW_BYTES,
    ROWS,
    STEP_BYTES,
    STRIPS,
    WARPGROUP,
    Matrix,
    PersistentProduct,
    Side,
)
from tuner.target.cuda import WARP
from tuner.workload.expression import DTYPE_BYTES, Tensor

# Registers of a producer's and of a consumer's thread, by the number of consumers: what a
# block has in all, in steps of 8. None where the compiler's own number is enough.
REGISTERS: Mapping[int, tuple[int, int] | None] = {1: None, 2: (40, 232)}
FIRST_TURN = 3  # number of the hardware barrier of the first consumer's turn
C_NAMES = {
    "float16": "half", "bfloat16": "nv_bfloat16", "float32": "float", "int8": "signed char",
    "uint8": "unsigned char", "int32": "int",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PersistentKernel:
    """One persistent product as text and as a launch."""

    symbol: str  # of the kernel; begins the names of its functions
    product: PersistentProduct
    tensors: Mapping[str, Tensor]  # in the shapes in which the program addresses them

    # --- launch
    # ------------------------------------------------------------------------------

    @property
    def launch(self) -> Launch:
        product = self.product
        return Launch(
            kernel=self.symbol,
            arguments=self._pointers,
            grid=(product.grid, 1, 1),
            block=(product.tile.threads, 1, 1),
            shared_bytes=product.shared_bytes,
            maps=self._maps,
        )

    @cached_property
    def _pointers(self) -> tuple[str, ...]:
        """Tensors that the epilogue reads."""
        epilogue = self.product.epilogue
        return () if epilogue is None else epilogue_tensors(epilogue, self.product.sums)

    @property
    def _maps(self) -> tuple[TensorMap, ...]:
        product, tile = self.product, self.product.tile
        if self._pixels is not None:
            return self._pixels.maps()
        rows, columns, depth = product.height, product.columns.extent, product.depth.extent
        left = self._map(product.left, (rows, depth), (tile.rows, product.step))
        if product.right.transposed:
            right = self._map(product.right, (columns, depth), (tile.columns, product.step))
        else:
            right = self._map(product.right, (depth, columns), (product.step, COLUMNS))
        return left, right, self._map(product.output, (rows, columns), (ROWS, product.strip))

    @cached_property
    def _pixels(self) -> PixelText | None:
        pixels = self.product.pixels
        return None if pixels is None else PixelText(self.product, pixels, self.symbol)

    def _map(self, matrix: Matrix, shape: tuple[int, int], box: tuple[int, int]) -> TensorMap:
        batched = matrix.batched
        return TensorMap(
            buffer=matrix.tensor,
            shape=(self.product.matrices, *shape) if batched else shape,
            box=(1, *box) if batched else box,
        )

    # --- text
    # ------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        product, tile = self.product, self.product.tile
        multiply = multiplication(
            tile.panels, product.factors, transposed=product.right.transposed
        ).replace("tuner_multiply(", f"{self.symbol}_multiply(")
        corner = "" if self._pixels is None else self._pixels.corner
        return "".join((multiply, self._place, corner, self._finish, self._produce, self._consume))

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

    @property
    def _produce(self) -> str:
        """What the producer's thread does."""
        product, tile = self.product, self.product.tile
        begins = "" if self._pixels is None else f"{self._pixels.tile_begins}\n"
        return f"""
static __device__ __forceinline__ void {self.symbol}_produce(\
const tuner_map *left, const tuner_map *right, unsigned ring, unsigned full, unsigned empty) {{
  int slot = 0;
  unsigned phase = 1;
  for (int tile = blockIdx.x; tile < {product.tiles}; tile += gridDim.x) {{
    const {self.symbol}_place at = {self.symbol}_tile(tile);
{begins}#pragma unroll 1 /* more takes more registers than a producer has */
    for (int step = 0; step < {product.steps}; ++step) {{
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

    @property
    def _consume(self) -> str:
        """The kernel, with what consumers do."""
        product, tile = self.product, self.product.tile
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
const __grid_constant__ tuner_map output{self._declared_pointers}) {{
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
    {self._sum} sums[{tile.fragments}][{tile.panels * 32}];
    int slot = 0, half = 0;
    unsigned phase = 0;
    {self._begin}
    for (int tile = blockIdx.x; tile < {product.tiles}; tile += gridDim.x) {{
{self._skip}
      const {self.symbol}_place at = {self.symbol}_tile(tile);
      int before = slot;
#pragma unroll 1
      for (int step = 0; step < {product.steps}; ++step) {{
        const unsigned rows = ring + slot * {tile.stage_bytes}{self._own_rows(ROW_BYTES)};
        const unsigned columns = ring + slot * {tile.stage_bytes} + {tile.rows * ROW_BYTES};
        tuner_wait(full + slot * {BARRIER_BYTES}, phase);
{self._multiply}
        if (step > 0) {self._release}
        before = slot;
        if (++slot == {tile.stages}) {{ slot = 0; phase ^= 1; }}
      }}
      tuner_multiplied<0>();
{self._each_fragment("tuner_keep(sums[fragment]);")}
      {self._release}
      {self._pass_on}
{self._store}
    }}
    if (thread == 0) tuner_stores_read<0>();
  }}
}}
"""

    def _own_rows(self, scale: int) -> str:
        """Where a consumer's rows of a tile begin."""
        tile = self.product.tile
        return "" if tile.alternating else f" + consumer * {ROWS * tile.fragments * scale}"

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
        tile, steps = self.product.tile, self.product.steps
        if not tile.alternating:
            return ""
        rounds = steps // tile.stages % 2
        return f"""\
      const bool skipped = turn != consumer;
      turn ^= 1;
      if (skipped) {{
        slot += {steps % tile.stages};
        phase ^= {rounds};
        if (slot >= {tile.stages}) {{ slot -= {tile.stages}; phase ^= 1; }}
        continue;
      }}
      tuner_wait_for_turn({FIRST_TURN} + consumer);"""

    @property
    def _pass_on(self) -> str:
        """The other consumer multiplies while this one stores."""
        tile = self.product.tile
        return f"tuner_pass_turn({FIRST_TURN} + 1 - consumer);" if tile.alternating else ""

    def _each_fragment(self, statement: str) -> str:
        return (
            "#pragma unroll\n        for (int fragment = 0; fragment < "
            f"{self.product.tile.fragments}; ++fragment) {statement}"
        )

    @property
    def _multiply(self) -> str:
        """Multiplications of a stage. Those of the stage before are done afterwards."""
        product = self.product
        # As deep as an instruction: 32 bytes of a row, or 16 rows.
        columns = (
            f"columns + k * {STEP_BYTES}, 1"
            if product.right.transposed
            else f"columns + k * {16 * ROW_BYTES}, {PANEL_BYTES}"
        )
        call = (
            f"{self.symbol}_multiply(sums[fragment], "
            f"tuner_operand(rows + fragment * {PANEL_BYTES} + k * {STEP_BYTES}, 1), "
            f"tuner_operand({columns}), (step | k) != 0);"
        )
        keep = self._each_fragment("tuner_keep(sums[fragment]);")
        return f"""\
{keep}
        tuner_multiplications_begin();
#pragma unroll
        for (int k = 0; k < {ROW_BYTES // STEP_BYTES}; ++k) {{
{self._each_fragment(call)}
        }}
        tuner_multiplications_end();
{keep}
        tuner_multiplied<1>();"""

    @property
    def _release(self) -> str:
        """A warp has read the stage before."""
        return f"{{ if (lane == 0) tuner_arrive(empty + before * {BARRIER_BYTES}); }}"

    @property
    def _store(self) -> str:
        """Sums through shared memory, a strip of the output at a time."""
        product, tile = self.product, self.product.tile
        strips = tile.columns // product.strip
        matrix = ", at.matrix" if product.output.batched else ""
        rows = f", first{matrix}" if self._pixels is None else self._pixels.stored_at("first")
        return f"""\
#pragma unroll
      for (int fragment = 0; fragment < {tile.fragments}; ++fragment) {{
        const int first = at.row{self._own_rows(1)} + fragment * {ROWS};
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
            return f"          {self._sum} *values = {held};"
        pointers = "".join(f", {name}" for name in self._pointers)
        # In the place of the sums where both are of a type.
        declared, given = (
            (f"{self._sum} *values = {held};", "values")
            if self._sum == self._result
            else (
                f"{self._sum} *given = {held};\n          {self._result} values[{count}];",
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


def _load(matrix: Matrix, name: str, to: str, place: str) -> str:
    """A copy of a box. `place`: of its first element, innermost dimension first."""
    last = ", at.matrix" if matrix.batched else ""
    return f"      tuner_load({to}, {name}, {place}{last}, filled);"


def kernels_of(
    products: Sequence[PersistentProduct], symbol: str, tensors: Mapping[str, Tensor]
) -> tuple[PersistentKernel, ...]:
    """A kernel for each product, named after the function that launches them."""
    return tuple(
        PersistentKernel(symbol=f"{symbol}_persistent_{number}", product=product, tensors=tensors)
        for number, product in enumerate(products)
    )


def with_persistent(source: str, kernels: Sequence[PersistentKernel]) -> str:
    """The source of other kernels, perhaps none, with these and what they call."""
    bodies = "".join(kernel.text for kernel in kernels)
    headers = sorted({header for kernel in kernels for header in kernel.headers})
    extremes = (
        text for name, text in EXTREMES.items() if f"{name}(" in bodies and f"{name}(" not in source
    )
    packings = (text for dtype, text in PACKINGS.items() if f"tuner_pair_{dtype}(" in bodies)
    parts = (
        *(f"#include <{header}>\n" for header in headers),
        source,
        *extremes,
        INSTRUCTIONS,
        *packings,
        bodies,
    )
    return "".join(parts)
