"""CPUs: loop nests whose cycles are estimated, object code that links into a library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.cost_model.features import FEATURE_VERSION, featurizer
from tuner.cost_model.history import Opinion, Prior, TransferRanker
from tuner.cost_model.model import CostModel, Featurizer
from tuner.export.archive import export_archive
from tuner.export.examples import expected_outputs
from tuner.export.kernel import ExportKernel, computation_of
from tuner.export.signature import Signer
from tuner.measure.assignment import Lane
from tuner.measure.device.limits import device_limits
from tuner.runtime.link import toolchain_for
from tuner.search.alternatives import COUNT, alternatives
from tuner.search.domain import Domain
from tuner.search.seeds import MOST_SEEDS, carried_over, with_winners
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.cpu.fully_unrolled import FULLY_UNROLLED
from tuner.target.limits import measure_limits
from tuner.target.target import Limits, Target
from tuner.workers.backends.backend import CandidateCompiler, FirstPoints, Packing, Transfer
from tuner.workers.fleet.messages import Problem

EXPECTED_FLOPS = 2e9  # a promotion waits for the reference: a second or two of it


class CpuBackend:
    """`Backend` for CPUs, of this machine, declared ones and devices."""

    transfer = Transfer(version=FEATURE_VERSION, featurizer=featurizer, prior=Prior)
    default_flops_per_s = 2e9  # 135 ms for a matrix product of 512 on Sapphire Rapids

    def cost_model(
        self, space: TargetSpace[LoopNestFacts], prior: Opinion
    ) -> tuple[Featurizer, CostModel]:
        """An estimate of cycles from the loop nests, corrected by what is measured."""
        return featurizer(space), TransferRanker(prior)

    def first_points(
        self,
        space: TargetSpace[LoopNestFacts],
        domain: Domain,
        features: Featurizer,
        *,
        learns: bool,
        seed: int,
        single: bool = False,
    ) -> FirstPoints:
        """The fully unrolled program first, where there is one: no estimate knows what
        the compiler makes of it."""
        unrolled: Config = {"sketch": FULLY_UNROLLED}
        if not learns:
            return lambda winners: carried_over(space.space, (unrolled, *winners))[:MOST_SEEDS]
        rivals = 0 if single else COUNT
        favourites = alternatives(
            domain, features, Prior(), space.by_algorithm, seed=seed, count=rivals
        )
        return lambda winners: with_winners(domain, favourites, (unrolled, *winners))

    def limits(self, target: Target, lane: Lane) -> Limits:
        """Those of the lane's first core, or of its device."""
        if lane.device is not None:
            return device_limits(lane.device, target)
        return measure_limits(lane.cores[0])

    def compiler(self, problem: Problem, storage: Path) -> CandidateCompiler:
        # Only a process that compiles is to load TVM.
        from tuner.workers.backends.cpu_compiler import CpuCandidateCompiler  # noqa: PLC0415

        return CpuCandidateCompiler(problem)

    def export(self, packing: Packing, name: str, signer: Signer | None) -> bytes:
        workload, target = packing.problem.workload, packing.problem.target
        kernel = ExportKernel(
            **computation_of(workload, target),
            threads=packing.problem.threads,
            object_code=packing.object_code,
            tvm_symbol=f"__tvm_ffi_{packing.library.symbol}",
            median_s=packing.winner.median_s,
            ci95_s=packing.winner.ci95_s,
            verified=True,
            max_rel_error=packing.winner.max_rel_error,
            provenance=packing.provenance,
            prepack=packing.prepack,
        )
        expected = expected_outputs(workload.expression, kernel, most_flops=EXPECTED_FLOPS)
        return export_archive(
            [replace(kernel, expected=expected)],
            name,
            toolchain=toolchain_for(target),
            signer=signer,
        )
