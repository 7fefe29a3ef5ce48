"""The executor of a model's target, once it is clear that it can run the model."""

from __future__ import annotations

from tuner.app.models.tuned_model import policy_of
from tuner.app.platforms.table import platform_of
from tuner.errors import UsageError
from tuner.models.executor import Executor
from tuner.models.graph import Graph
from tuner.settings import Settings
from tuner.target.capability import called
from tuner.target.target import Target


def executor_for(
    target: Target, settings: Settings, graph: Graph, *, several: bool = False
) -> Executor:
    """This machine's executor for the target, before anything is tuned.

    `several` says that the library is to have models for several extents. Raises
    UsageError where there is no such device, and for what the target's models have not;
    ModelRefused for a model that cannot run there.
    """
    executor = platform_of(target).executor(target, settings, settings.threads)
    executor.refuse(graph)
    if executor.switching_cores:
        return executor
    if several:
        raise UsageError(
            f"a library for {called(target)} has one model; give one extent instead of a range or "
            f"a list, and tune it once for each"
        )
    if policy_of(settings).fast:
        raise UsageError(
            f"models for {called(target)} have strict numerics; leave --numerics fast out, and "
            f"give --numerics strict with --max-error"
        )
    return executor
