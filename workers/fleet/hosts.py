"""The hosts of a cluster as a driver sees them: who joined, who is gone, who is refused and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from tuner.workers.fleet.cluster import NAMESPACE
from tuner.workers.fleet.host import PREFIX, mismatch
from tuner.workers.fleet.messages import FleetPlan, HostPlan

ANSWER_S = 5.0  # a host that does not describe itself in this time is asked again at the next look


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What changed since the last look."""

    joined: tuple[HostPlan, ...] = ()
    gone: tuple[str, ...] = ()  # names
    refused: tuple[str, ...] = ()  # why, each naming its host


class Hosts:
    """Not thread-safe; used inside the driver."""

    def __init__(self, plan: FleetPlan) -> None:
        self._plan = plan
        self._plans: dict[
            str, HostPlan
        ] = {}  # of the hosts that ever worked for this driver, by name
        self._narrow: dict[
            str, str
        ] = {}  # actors of hosts that serve the target with lanes too short for it -> the hosts
        self._known: dict[
            str, str | None
        ] = {}  # each host's actor -> the host that works for this driver, if it does

    def look(self) -> Seen:
        """Asks the cluster. Raises RayError where that is gone."""
        named = {
            str(actor["name"])
            for actor in ray.util.list_named_actors(all_namespaces=True)
            if actor["namespace"] == NAMESPACE and str(actor["name"]).startswith(PREFIX)
        }
        gone = [
            host
            for name, host in sorted(self._known.items())
            if name not in named and host is not None
        ]
        self._known = {name: host for name, host in self._known.items() if name in named}
        self._narrow = {name: host for name, host in self._narrow.items() if name in named}
        joined, refused = [], []
        for name in sorted(named - set(self._known)):
            try:
                actor = ray.get_actor(name, namespace=NAMESPACE)
                host: HostPlan = ray.get(actor.describe.remote(), timeout=ANSWER_S)
            except (ValueError, RayError):
                continue  # gone again, or busy
            reason = mismatch(host, self._plan.versions)
            if reason is not None:
                refuse(actor, reason)
                refused.append(reason)
            elif self._suits(host):
                gone += self._replaced(host)
                joined.append(host)
                self._plans[host.name] = host
            elif self._serves(host):
                self._narrow[name] = host.name
            self._known[name] = host.name if reason is None and self._suits(host) else None
        return Seen(joined=tuple(joined), gone=tuple(gone), refused=tuple(refused))

    @property
    def present(self) -> tuple[HostPlan, ...]:
        """Those that work for this driver."""
        return tuple(
            self._plans[name]
            for name in sorted({name for name in self._known.values() if name is not None})
        )

    @property
    def narrow(self) -> tuple[str, ...]:
        """Those that serve the target and have no lane for its kernels' threads."""
        return tuple(sorted(self._narrow.values()))

    def _replaced(self, host: HostPlan) -> list[str]:
        """A host that was cut off may be back before the cluster has noticed that it
        was gone: what was there of it is."""
        before = [name for name, serving in self._known.items() if serving == host.name]
        self._known |= dict.fromkeys(before)
        return [host.name for _ in before]

    def _suits(self, host: HostPlan) -> bool:
        return self._serves(host) and any(
            len(lane.cores) >= self._plan.threads for lane in host.lanes
        )

    def _serves(self, host: HostPlan) -> bool:
        return self._plan.target in (host.target, *host.serves)


def refuse(actor: Any, reason: str) -> None:
    actor.refuse.remote(reason)


def described(host: HostPlan, isolation: str, target: str) -> Mapping[str, int | str]:
    """A machine as the orchestrator is told of it, which makes it known as a worker for
    the target of this key."""
    lanes = [{"name": f"{host.name}/{lane.name}", "cores": list(lane.cores)} for lane in host.lanes]
    return {
        "name": host.name,
        "target": target,
        "isolation": isolation,
        "lanes": json.dumps(lanes),
        "versions": json.dumps(dict(host.versions)),
        "labels": json.dumps(dict(host.labels)),
    }
