"""Isolation levels: how far a candidate's child is fenced off from the machine.

Each level has all of the one before. process: what works on any kernel. confined: the
system calls that the child may make, its privileges, the number of its processes.
sealed: the files and the network that it can reach. The level is recorded with each
trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from tuner.errors import UsageError
from tuner.measure.sandbox.support import Finding, Mechanism, State, Support, Way, probe_apart

_CONFINED = (Mechanism.SECCOMP, Mechanism.CAPABILITIES, Mechanism.PROCESSES)
_ADDED: Mapping[str, tuple[Mechanism, ...]] = MappingProxyType(
    {
        "process": (),
        "confined": _CONFINED,
        "sealed": (*_CONFINED, Mechanism.FILES, Mechanism.NETWORK),
    }
)
LEVELS: tuple[str, ...] = tuple(_ADDED)  # weakest first
REQUIRED = "required"  # the highest level with all that the running kernel has
DEFAULT_LEVEL = REQUIRED
_WITHOUT = " without "


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A level as it is in force on this machine."""

    name: str  # as recorded: "sealed", or "sealed without network, files"
    machine: str = ""
    # Of the mechanisms in force.
    findings: Mapping[Mechanism, Finding] = field(default_factory=dict)

    def way(self, mechanism: Mechanism) -> Way | None:
        """How the mechanism is in force; None where it is not."""
        return self.findings[mechanism].way if mechanism in self.findings else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationRow:
    """One line of `tuner doctor`: a mechanism, or the level as a whole."""

    check: str
    status: Literal["ok", "warning", "failed"]
    detail: str


def check_level(text: str) -> None:
    """Raises UsageError for what is no level.

    A level is "required", a level's name, or "LEVEL without MECHANISM, …".
    """
    _parse(text)


def resolve(text: str, support: Support) -> Isolation:
    """The level on this machine.

    "required" leaves out what the kernel does not have. What it has and refuses to this
    process must be given up by name. Raises UsageError where a mechanism that the level
    needs cannot be had, naming it and the way out.
    """
    level, without = _parse(text)
    required = [mechanism for mechanism in _ADDED[level] if mechanism not in without]
    if text == REQUIRED:
        required = [
            mechanism
            for mechanism in required
            if support.findings[mechanism].state is not State.MISSING
        ]
    lacking = [mechanism for mechanism in required if _lacks(mechanism, required, support)]
    if lacking:
        why = "; ".join(
            f"{mechanism}: {support.findings[mechanism].detail}" for mechanism in lacking
        )
        given_up = ", ".join(
            mechanism
            for mechanism in _ADDED[level]
            if mechanism in lacking or mechanism not in required
        )
        raise UsageError(
            f"isolation {text!r} cannot be had here ({why}); allow it to this process, or "
            f"accept less by the level "
            f"'{level}{_WITHOUT}{given_up}'"
        )
    left_out = [mechanism for mechanism in _ADDED[level] if mechanism not in required]
    return Isolation(
        name=level + (_WITHOUT + ", ".join(left_out) if left_out else ""),
        machine=support.machine,
        findings={mechanism: support.findings[mechanism] for mechanism in required},
    )


def isolation_report(
    text: str = DEFAULT_LEVEL, support: Support | None = None
) -> list[IsolationRow]:
    """What `tuner doctor` shows: each mechanism, then the level that a runner would have.

    Or why it would not start. Tries the kernel in a process of its own unless `support`
    is given. Raises OSError when that cannot be started.
    """
    findings_here = support if support is not None else probe_apart()
    rows = [
        IsolationRow(
            check=f"isolation: {mechanism}",
            status="ok" if finding.state is State.AVAILABLE else "warning",
            detail=finding.detail,
        )
        for mechanism, finding in findings_here.findings.items()
    ]
    try:
        isolation = resolve(text, findings_here)
    except UsageError as error:
        return [*rows, IsolationRow(check="isolation", status="failed", detail=str(error))]
    status: Literal["ok", "warning"] = "ok" if isolation.name == LEVELS[-1] else "warning"
    return [
        *rows,
        IsolationRow(check="isolation", status=status, detail=f"candidates run {isolation.name}"),
    ]


def _lacks(mechanism: Mechanism, required: list[Mechanism], support: Support) -> bool:
    """Whether a mechanism cannot be had together with the others."""
    finding = support.findings[mechanism]
    if finding.state is not State.AVAILABLE:
        return True
    # The filter may be a mechanism's way only as long as there is a filter.
    return finding.way is Way.SECCOMP and Mechanism.SECCOMP not in required


def _parse(text: str) -> tuple[str, list[Mechanism]]:
    """A level's name and the mechanisms that it does without."""
    level, _, names = (LEVELS[-1] if text == REQUIRED else text).partition(_WITHOUT)
    if level not in _ADDED:
        raise UsageError(
            f"unknown isolation level {text!r}; use {REQUIRED}, one of {', '.join(LEVELS)}, or "
            f"a level without some of its "
            f"mechanisms, as in '{LEVELS[-1]}{_WITHOUT}{Mechanism.NETWORK}'"
        )
    left_out = [name.strip() for name in names.split(",") if name.strip()]
    mechanisms = {str(mechanism): mechanism for mechanism in _ADDED[level]}
    for name in left_out:
        if name not in mechanisms:
            has = ", ".join(mechanisms) or "none to leave out"
            raise UsageError(f"isolation level {level!r} has no mechanism {name!r}; it has {has}")
    return level, [mechanisms[name] for name in left_out]
