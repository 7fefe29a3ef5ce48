"""Whether a model can run on its target, before anything is tuned."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.app.models.tuned_model import policy_of
from tuner.app.platforms.table import measuring_platform
from tuner.errors import UsageError
from tuner.models.graph import Graph
from tuner.settings import Settings
from tuner.target.capability import called
from tuner.target.target import Target


def check_runnable(
    target: Target,
    settings: Settings,
    graph: Graph,
    *,
    several: bool = False,
    frameworks: Sequence[str] = (),
) -> None:
    """Asks the executor of the target, here or on the settings' device.

    `several` says that the library is to have models for several extents; `frameworks` are
    those that it is for. Raises UsageError where there is no such device, and for what the
    target's models have not; ModelRefused for a model that cannot run there; DeviceError.
    """
    platform = measuring_platform(target, settings)
    with platform.executor(target, settings, settings.threads) as executor:
        executor.refuse(graph)
        if executor.switching:
            return
    if several:
        raise UsageError(
            f"a library for {called(target)} has one model; give one extent instead of a range or "
            f"a list, and tune it once for each"
        )
    if frameworks:
        raise UsageError(
            f"a library for {called(target)} is for none of {', '.join(frameworks)}; leave --for "
            f"out"
        )
    if policy_of(settings).fast:
        raise UsageError(
            f"models for {called(target)} have strict numerics; leave --numerics fast out, and "
            f"give --numerics strict with --max-error"
        )
