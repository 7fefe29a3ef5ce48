"""The contract of a kind of target, and what travels through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tuner.cost_model.history import HistoryModel, Opinion
from tuner.cost_model.model import CostModel, Featurizer
from tuner.export.signature import Signer
from tuner.measure.assignment import Lane
from tuner.measure.gpu.resources import Resources
from tuner.runtime.prepack import Prepack
from tuner.search.domain import Domain
from tuner.spaces.core.space import Config, Points
from tuner.spaces.core.target_space import TargetSpace
from tuner.target.target import Limits, Target
from tuner.workers.fleet.messages import Library, Problem, Ranked

F_contra = TypeVar("F_contra", contravariant=True)
FirstPoints = Callable[[Sequence[Config]], Points]
"""Points that a search tries first, shape (n, knobs), by configs of similar workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCandidate:
    """A candidate's code."""

    library: bytes  # what is measured
    code: bytes  # what it was linked from: an object, or a packed module with its cubins
    symbol: str
    schedule: Callable[[], Mapping[str, Any]]  # to be stored with a winner, with the sources
    resources: Resources | None = None  # what it takes of a GPU
    code_bytes: int | None = None  # machine code of a CPU's kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How trials of other workloads and machines of a kind teach the cost model of a new one."""

    version: int  # of the meaning of the features
    featurizer: Callable[[TargetSpace[Any]], Featurizer]  # columns that mean the same everywhere
    prior: Callable[[], HistoryModel]  # nothing taught it yet


class CandidateCompiler(Protocol):
    """Compiles the candidates of one problem."""

    @property
    def problem(self) -> Problem: ...

    def compile(self, config: Config | None) -> CompiledCandidate:
        """The code of a config, of the default schedule where there is none.

        Raises IllegalSchedule and what compilers raise.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Packing:
    """What a winner's export is made of, besides its code."""

    problem: Problem
    library: Library
    object_code: bytes
    winner: Ranked
    provenance: Mapping[str, Any]  # job, trial, trace, versions; JSON values
    prepack: Prepack | None = None  # the function that packs its constants, in the same object


class Backend(Protocol[F_contra]):
    """How kernels of one kind of target are searched, compiled and exported.

    F_contra is what its sketches say of themselves.
    """

    @property
    def transfer(self) -> Transfer:
        """What carries over from other workloads and from other machines of the kind."""
        ...

    @property
    def default_flops_per_s(self) -> float:
        """What a default schedule computes in a second, roughly: it decides whether
        there is time for one."""
        ...

    def cost_model(
        self, space: TargetSpace[F_contra], prior: Opinion
    ) -> tuple[Featurizer, CostModel]:
        """Features of points, and the model that ranks by them before anything is measured.

        `prior`: of this kind's `transfer`.
        """
        ...

    def first_points(
        self,
        space: TargetSpace[F_contra],
        domain: Domain,
        features: Featurizer,
        *,
        learns: bool,
        seed: int,
        single: bool = False,
    ) -> FirstPoints:
        """The points that a search tries first, once it is known what won elsewhere.

        What takes long is done now. `learns`: whether the strategy follows a cost model.
        `single`: whether none but the first will be tried.
        """
        ...

    def limits(self, target: Target, lane: Lane) -> Limits:
        """What a lane of this machine can do at most, measured now.

        Raises LimitsError where it cannot be measured.
        """
        ...

    def compiler(self, problem: Problem, storage: Path) -> CandidateCompiler:
        """Loads TVM. `storage`: a directory where a compiler may keep what it made."""
        ...

    def export(self, packing: Packing, name: str, signer: Signer | None) -> bytes:
        """The .tar.gz of a library of one kernel. The same input, the same bytes.

        Raises ExportRefused, ExportError and LinkError.
        """
        ...
