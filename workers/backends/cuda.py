"""NVIDIA GPUs: kernels whose time is estimated from their knobs, modules of cubins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.cost_model.cuda.estimate import CudaDescription, CudaFeatures, other_algorithms
from tuner.cost_model.cuda.history import FEATURE_VERSION, CudaPrior
from tuner.cost_model.history import Opinion, TransferRanker
from tuner.cost_model.model import CostModel, Featurizer
from tuner.export.cuda import ExportCudaKernel, cuda_archive
from tuner.export.signature import Signer
from tuner.measure.assignment import Lane
from tuner.measure.gpu.limits import measure_gpu_limits
from tuner.measure.gpu.runner import gpu_lane
from tuner.runtime.cuda_module import unpacked
from tuner.search.domain import Domain
from tuner.search.seeds import MOST_SEEDS, carried_over
from tuner.spaces.core.space import Config, Points
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.facts import KernelFacts
from tuner.target.limits import LimitsError
from tuner.target.target import Limits, Target
from tuner.workers.backends.backend import CandidateCompiler, FirstPoints, Packing, Transfer
from tuner.workers.fleet.messages import Problem

OTHERS = 4  # of the first points by another algorithm than the one the estimate favours


class CudaBackend:
    """`Backend` for NVIDIA GPUs."""

    transfer = Transfer(version=FEATURE_VERSION, featurizer=CudaDescription, prior=CudaPrior)
    default_flops_per_s = 1e11  # assumed: one thread an element, nothing shared

    def cost_model(
        self, space: TargetSpace[KernelFacts], prior: Opinion
    ) -> tuple[Featurizer, CostModel]:
        """An estimate from the knobs, corrected by what is measured."""
        return CudaFeatures(space), TransferRanker(prior)

    def first_points(
        self,
        space: TargetSpace[KernelFacts],
        domain: Domain,
        features: Featurizer,
        *,
        learns: bool,
        seed: int,
        single: bool = False,
    ) -> FirstPoints:
        others = other_algorithms(space, OTHERS, seed)

        def points(winners: Sequence[Config]) -> Points:
            carried = carried_over(space.space, winners)[: MOST_SEEDS - len(others)]
            first: Points = np.concatenate([carried, others])
            return first

        return points

    def limits(self, target: Target, lane: Lane) -> Limits:
        """Those of the lane's GPU, by kernels that are compiled for it."""
        # Only a process that compiles is to load TVM.
        from tuner.workers.backends.cuda_compiler import cubin_of  # noqa: PLC0415

        if lane.gpu is None:
            raise LimitsError(f"lane {lane.name} of this machine is no GPU")
        return measure_gpu_limits(target, gpu_lane(lane), cubin_of)

    def compiler(self, problem: Problem, storage: Path) -> CandidateCompiler:
        # Only a process that compiles is to load TVM.
        from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler  # noqa: PLC0415

        return CudaCandidateCompiler(problem, storage / "cubins")

    def export(self, packing: Packing, name: str, signer: Signer | None) -> bytes:
        """The kernel, whose code is its packed module, with the numbers of its race."""
        target, winner = packing.problem.target, packing.winner
        kernel = ExportCudaKernel(
            module=unpacked(packing.object_code),
            workload=packing.problem.workload,
            measured={
                "target": {"key": target.key, "kind": target.kind, "name": target.name},
                "isa": list(target.isa),
                "threads": packing.problem.threads,
                "median_s": winner.median_s,
                "ci95_s": list(winner.ci95_s),
                "verified": True,
                "max_rel_error": winner.max_rel_error,
                "provenance": dict(packing.provenance),
            },
        )
        return cuda_archive([kernel], name)
