"""Examines foreign kernels of one workload on a GPU: are they right, how long do they take."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from tuner.errors import UsageError
from tuner.measure.foreign.cuda_compiler import compile_cuda
from tuner.measure.foreign.dimensions import Dimensions
from tuner.measure.foreign.examination import Contestant
from tuner.measure.foreign.judgement import judge_contestant
from tuner.measure.foreign.session import verdict_name
from tuner.measure.foreign.verdict import Guilty, Verdict, guilty_from_document
from tuner.measure.gpu.runner import GpuRunner
from tuner.measure.outcome import Failed
from tuner.measure.wire import Document
from tuner.target.target import Target
from tuner.workload.workload import Workload

CHECKS_FACTOR = 3.0  # of the time of a trial: what is called is checked in the same process


class GpuExamination:
    """Of one workload, on one GPU: an `Examiner`. Each contestant has a new process."""

    def __init__(self, workload: Workload, runner: GpuRunner, *, timeout_s: float) -> None:
        """`timeout_s`: of a trial; a contestant's process has more. Raises GpuRunnerError."""
        self._runner, self._timeout_s = runner, CHECKS_FACTOR * timeout_s
        runner.prepare(workload, secrets.randbits(62))

    def verify(self, contestant: Contestant) -> float:
        """The largest error over all kinds of inputs, each on two poisons. Raises Guilty."""
        return float(self._asked(contestant, timed=False)["max_rel_error"])

    def time(self, contestant: Contestant) -> tuple[float, ...]:
        """Seconds of one call, a sample for each round of a fresh process. Raises Guilty."""
        return tuple(map(float, self._asked(contestant, timed=True)["samples_s"]))

    def _asked(self, contestant: Contestant, *, timed: bool) -> Document:
        answer = self._runner.examine(contestant, timed=timed, timeout_s=self._timeout_s)
        if isinstance(answer, Failed):
            raise Guilty(verdict_name(answer), answer.message)
        if "guilty" in answer:
            raise guilty_from_document(answer["guilty"])
        return answer


def judge_cuda(
    workload: Workload,
    source: str,
    symbol: str,
    target: Target,
    launch: Dimensions,
    runner: GpuRunner,
    *,
    rival: Contestant | None,
    timeout_s: float = 30.0,
) -> Verdict:
    """The verdict on CUDA C++ with a kernel `symbol`, compiled here and run on a GPU.

    `timeout_s`: of a trial. Raises UsageError for a workload with constants, for
    dimensions that the target cannot launch, and without NVRTC; RivalFailed, GpuRunnerError,
    FenceMissing, NoRoom.
    """
    if workload.constants:
        raise UsageError(
            "a foreign kernel gets all inputs in each call; leave const="
            f"{','.join(workload.constants)} away"
        )
    fault = launch.fault(target)
    if fault is not None:
        raise UsageError(f"the kernel cannot be launched: {fault}")
    with tempfile.TemporaryDirectory(prefix="tuner-judge-") as folder:
        cubin = Path(folder, "kernel.cubin")
        try:
            cubin.write_bytes(compile_cuda(source, target))
        except Guilty as guilty:
            return guilty.verdict
        contestant = Contestant(name="candidate", library=str(cubin), symbol=symbol, launch=launch)
        examination = GpuExamination(workload, runner, timeout_s=timeout_s)
        return judge_contestant(examination, contestant, rival)
