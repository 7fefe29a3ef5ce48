"""Which target a request means: by key, name or kind; left out, the one the service has."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import UsageError
from tuner.target.cuda import cuda_targets
from tuner.target.detect import parse_target
from tuner.target.target import Target

DECLARED = frozenset(f"cuda:{arch}" for arch in cuda_targets())


class UnknownTarget(UsageError):
    """No target, or several, go by this name."""

    code = "unknown_target"


def choose(name: str | None, known: Sequence[Target], default: str | None) -> Target:
    """The target of `known` that `name` means; without a name the service's `default`,
    else the only one.

    A declared GPU (`cuda:sm_90`) is always known, whether or not any machine has it.
    """
    if name is not None and name.strip().lower() in DECLARED:
        return parse_target(name)
    if not known:
        raise UnknownTarget(
            "no machine has joined yet, so there is no target; start a worker with 'tuner "
            "worker' or 'tuner serve'"
        )
    exact = [target for target in known if name is not None and name in (target.key, target.name)]
    alike = exact or [target for target in known if name is None or target.kind == name]
    preferred = [target for target in alike if target.key == default]
    found = preferred or alike
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{target.name!r} ({target.key[:12]}…)" for target in known[:8])
    if found:
        raise UnknownTarget(
            f"target {name or 'left out'!r} means {len(found)} targets; name one of {listed}, "
            f"by its key or name"
        )
    raise UnknownTarget(f"target {name[:80] if name else ''!r} is not known; known are {listed}")
