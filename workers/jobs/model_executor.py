"""What checks and times the models of an orchestrator's jobs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.executors.cpu_executor import CpuExecutor
from tuner.models.executors.device_executor import device_executor
from tuner.models.executors.executor import Executor
from tuner.target.detect import detect_cpu
from tuner.target.target import Target
from tuner.workers.fleet.machine import plan_machine, usable_nodes
from tuner.workers.jobs.options import OrchestratorOptions


def model_executor(
    options: OrchestratorOptions, target: Target, threads: int
) -> AbstractContextManager[Executor | None]:
    """The executor on the first device or lane; None where neither is the job's target.

    Raises UsageError, LinkError and DeviceError.
    """
    if options.devices:
        return device_executor(options.devices[0], target, threads, options.limits.isolation)
    if detect_cpu().key != target.key:
        return nullcontext()
    plan = plan_machine(usable_nodes(), threads=threads, declared=options.lanes)
    return nullcontext(CpuExecutor(ConfinedCalls(plan.lanes[0].cores)))
