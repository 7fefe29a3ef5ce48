"""What sketches are built for: the target, and what one algorithm says of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.target.architectures.table import isa_of
from tuner.target.isa import IsaDescription
from tuner.target.target import Target
from tuner.workload.dtypes import DType
from tuner.workload.workload import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceContext:
    """One target and one algorithm, as every sketch of a group of the algorithm sees them."""

    target: Target
    units: int  # threads of a CPU or multiprocessors of a GPU that share the loops
    shapes: Mapping[str, tuple[int, ...]]  # of every tensor, by name
    dtypes: Mapping[str, DType]  # of every tensor, by name
    exact: frozenset[str]  # tensors that lie in memory in their own dtype, never widened
    rewritten: bool  # by an algorithm of many stages, of which fewer sketches are offered
    numerics: Numerics = "strict"
    in_patches: bool = False  # whether the algorithm's maps are computed a patch at a time

    @property
    def isa(self) -> IsaDescription:
        """What code for the target may use."""
        return isa_of(self.target)
