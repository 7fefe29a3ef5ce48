"""Watches the hosts of a cluster: which joined, left, or are refused."""

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

ANSWER_S = 5.0  # limit for a host's description; it is asked again at the next look


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChanges:
    """What changed since the last look."""

    joined: tuple[HostPlan, ...] = ()
    gone: tuple[str, ...] = ()  # names
    refused: tuple[str, ...] = ()  # why, each naming its host


class Hosts:
    """The hosts of a cluster as the driver knows them. Not thread-safe."""

    def __init__(self, plan: FleetPlan) -> None:
        self._plan = plan
        # Plans of all hosts that ever served this driver, by name.
        self._plans: dict[str, HostPlan] = {}
        # Hosts that serve the target without a lane of enough cores, by actor.
        self._narrow: dict[str, str] = {}
        # Hosts by actor; None for one that does not serve this driver.
        self._hosts: dict[str, str | None] = {}

    def look(self) -> HostChanges:
        """Asks the cluster for its hosts. Raises RayError if the cluster is gone."""
        named = {
            str(actor["name"])
            for actor in ray.util.list_named_actors(all_namespaces=True)
            if actor["namespace"] == NAMESPACE and str(actor["name"]).startswith(PREFIX)
        }
        gone = [
            host
            for name, host in sorted(self._hosts.items())
            if name not in named and host is not None
        ]
        self._hosts = {name: host for name, host in self._hosts.items() if name in named}
        self._narrow = {name: host for name, host in self._narrow.items() if name in named}
        joined, refused = [], []
        for name in sorted(named - set(self._hosts)):
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
            self._hosts[name] = host.name if reason is None and self._suits(host) else None
        return HostChanges(joined=tuple(joined), gone=tuple(gone), refused=tuple(refused))

    @property
    def present(self) -> tuple[HostPlan, ...]:
        """The hosts that serve this driver."""
        names = {name for name in self._hosts.values() if name is not None}
        return tuple(self._plans[name] for name in sorted(names))

    @property
    def narrow(self) -> tuple[str, ...]:
        """Names of hosts that serve the target without a lane of enough cores."""
        return tuple(sorted(self._narrow.values()))

    def _replaced(self, host: HostPlan) -> list[str]:
        """The host's name for each of its earlier actors, which are gone.

        A host that was cut off may be back before the cluster notices that it was gone.
        """
        before = [name for name, serving in self._hosts.items() if serving == host.name]
        self._hosts |= dict.fromkeys(before)
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
    """The description of a host for the orchestrator, as a worker for the given target."""
    lanes = [{"name": f"{host.name}/{lane.name}", "cores": list(lane.cores)} for lane in host.lanes]
    return {
        "name": host.name,
        "target": target,
        "isolation": isolation,
        "lanes": json.dumps(lanes),
        "versions": json.dumps(dict(host.versions)),
        "labels": json.dumps(dict(host.labels)),
    }
