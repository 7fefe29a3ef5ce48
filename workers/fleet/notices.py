"""Notices of the driver, or of a host that joined, to the orchestrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Description = Mapping[str, int | str]  # what a worker or a machine says of itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something an operator may want to know, in words."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReady(Notice):
    """Every builder and runner has answered."""

    workers: tuple[Description, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRefused(Notice):
    """The fleet, or the machine that wanted to join one, cannot be used as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingForHosts(Notice):
    """No machine of the cluster serves the target yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsPresent(Notice):
    """The machines of the cluster, every few seconds."""

    hosts: tuple[Description, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPresent(Notice):
    """All builders and lanes, whenever some came or went."""

    workers: tuple[Description, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost(Notice):
    """A builder or a lane died or gave no answer in time; another takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRefused(Notice):
    """A machine that joined, or a worker of one, cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDrift(Notice):
    """A lane left its band and is drained, or is back in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneShared(Notice):
    """Another run of tuner on its machine uses the cores of a lane; they take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReplaced(Notice):
    """The driver process was lost; what was in flight is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLost(Notice):
    """A machine that had joined a cluster cannot reach it any more."""
