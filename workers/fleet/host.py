"""A host of a cluster: its Ray node, and the actor by which drivers find it.

`tuner worker` runs it as `python -m tuner.workers.fleet.host FD SESSION`. The end of the
channel means that all is to stop.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import ray
from ray.exceptions import RayError

from tuner.workers.fleet import cluster, session
from tuner.workers.fleet.channel import parent_channel
from tuner.workers.fleet.messages import HostPlan
from tuner.workers.fleet.notices import ClusterLost, FleetReady, FleetRefused

# Prefix of the actors' names. A host that joins again has a new name, since the cluster
# may still know the old one.
PREFIX = "host:"
BEAT_S = 1.0
# Amount of a host's resource that an actor takes, which only determines where it runs.
PLACE = 0.001


def resource(host: str) -> str:
    """The custom resource by which actors are placed on a host."""
    return f"tuner-{host}"


class Host:
    """The actor of a host: describes its machine, and keeps a refusal for its owner."""

    def __init__(self, plan: HostPlan) -> None:
        os.sched_setaffinity(0, plan.builder_cores)
        self._plan = plan
        self._refused = ""

    def describe(self) -> HostPlan:
        return self._plan

    def refuse(self, reason: str) -> None:
        self._refused = reason

    def refused(self) -> str:
        """Why a driver refused this machine; empty if none did."""
        return self._refused


def mismatch(host: HostPlan, versions: Mapping[str, str]) -> str | None:
    """Why a host cannot serve a driver with these versions; None if it can."""
    different = [
        f"{name} {host.versions.get(name, 'missing')} (needed is {needed})"
        for name, needed in versions.items()
        if host.versions.get(name) != needed
    ]
    return (
        f"worker {host.name} has {', '.join(different)}; install the same versions"
        if different
        else None
    )


def main(descriptor: str, directory: str) -> None:
    channel = parent_channel(descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plan: HostPlan = replace(channel.recv(), storage=str(Path(directory) / "build"))
    os.sched_setaffinity(0, plan.builder_cores)  # Ray's processes inherit it
    node = cluster.join(
        Path(directory), plan.address, resources={resource(plan.name): 1.0}, node_ip=plan.node_ip
    )
    try:
        actor = ray.remote(num_cpus=0, resources={resource(plan.name): PLACE}, max_restarts=0)(Host)
        host = actor.options(name=f"{PREFIX}{plan.name}/{secrets.token_hex(4)}").remote(plan)
        cluster.answer(host.describe.remote(), node)
        channel.send(FleetReady(message=f"worker {plan.name} joined {plan.address}"))
        while not channel.poll(BEAT_S) and node.poll() is None:
            refused = cluster.answer(host.refused.remote(), node)
            if refused:
                channel.send(FleetRefused(message=refused))
                return
    except (RayError, cluster.ClusterUnreachable, EOFError, OSError) as error:
        with suppress(OSError):
            channel.send(ClusterLost(message=f"the cluster was lost: {error}"))
    finally:
        cluster.leave(node)
        session.remove_session(Path(directory))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
