"""Chooses the target of a request by key, name or kind; by default the service's own."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import UsageError
from tuner.target.capability import called, refuse_unmeasured
from tuner.target.detect import declared_targets, parse_target
from tuner.target.target import Target

DECLARED = frozenset(called(target) for target in declared_targets())


class UnknownTarget(UsageError):
    """No target, or several, go by this name."""

    code = "unknown_target"


def choose(name: str | None, stored: Sequence[Target], default: str | None) -> Target:
    """The target of `stored` that `name` means.

    Without a name it is the service's `default`, else the only target. A declared
    GPU or CPU (`cuda:sm_90`, `cpu:neoverse-n1`) is always accepted, whether or not any
    machine is one. Raises UsageError for one that none can be, UnknownTarget.
    """
    if name is not None and name.strip().lower() in DECLARED:
        target = parse_target(name)
        refuse_unmeasured(target)
        return target
    if not stored:
        raise UnknownTarget(
            "no machine has joined yet, so there is no target; start a worker with 'tuner "
            "worker' or 'tuner serve'"
        )
    exact = [target for target in stored if name is not None and name in (target.key, target.name)]
    alike = exact or [target for target in stored if name is None or target.kind == name]
    preferred = [target for target in alike if target.key == default]
    matches = preferred or alike
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(f"{target.name!r} ({target.key[:12]}…)" for target in stored[:8])
    if matches:
        raise UnknownTarget(
            f"target {name or 'left out'!r} means {len(matches)} targets; name one of {listed}, "
            f"by its key or name"
        )
    raise UnknownTarget(f"target {name[:80] if name else ''!r} is not known; known are {listed}")
