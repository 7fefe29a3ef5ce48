"""CUDA C++ of the kernel that adds up the parts of tiles that blocks shared (stream-K)."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.lowering.cuda.persistent_store import StoreText
from tuner.lowering.cuda.persistent_work import WorkText
from tuner.spaces.program.persistent import PANEL_BYTES, STRIPS, WARPGROUP, PersistentProduct


@dataclass(frozen=True, kw_only=True)
class CombineText:
    """The text of one product's second kernel, of which each block finishes a tile."""

    symbol: str
    product: PersistentProduct
    work: WorkText
    store: StoreText
    parameters: str  # of tensors that the epilogue reads

    @property
    def warpgroups(self) -> int:
        """Of a block: as many as had the sums of a tile."""
        tile = self.product.tile
        return 1 if tile.alternating else tile.consumers

    @property
    def shared_bytes(self) -> int:
        return self.warpgroups * STRIPS * PANEL_BYTES

    @property
    def kernel(self) -> str:
        shares, tile = self.product.stream_k, self.product.tile
        if shares is None:
            return ""
        sums = f"{self.work.sum} sums[{tile.fragments}][{self.store.sums_of_fragment}] = {{}};"
        part = f"2 * block + ({self.symbol}_begin(block) < unit)"
        return f"""
extern "C" __global__ void __launch_bounds__({self.warpgroups * WARPGROUP}, 1) \
{self.symbol}_combine(const __grid_constant__ tuner_map output{self.parameters}\
{self.work.parts_parameter}) {{
  extern __shared__ __align__(1024) unsigned char memory[];
  const int unit = (int)blockIdx.x * {shares.steps};
  const int first_block = {self.symbol}_owner(unit);
  const int last_block = {self.symbol}_owner(unit + {shares.steps - 1});
  if (first_block == last_block) return; /* which had the whole tile */
  const int consumer = __shfl_sync(0xffffffffu, (int)threadIdx.x / {WARPGROUP}, 0);
  const int thread = threadIdx.x % {WARPGROUP}, lane = threadIdx.x % 32;
  const unsigned strip = tuner_shared(memory) + consumer * {STRIPS * PANEL_BYTES};
  const int tile = {shares.waves * shares.blocks} + (int)blockIdx.x;
  const {self.symbol}_place at = {self.symbol}_tile(tile);
  int half = 0;
  {sums}
#pragma unroll 1
  for (int block = first_block; block <= last_block; ++block) {{
{self.work.each_part_sum(part, "sum += place;")}
  }}
{self.store.text}
  if (thread == 0) tuner_stores_read<0>();
}}
"""
