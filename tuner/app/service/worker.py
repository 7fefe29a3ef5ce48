"""`tuner worker`: joins a cluster with a host process, and joins again when it is lost."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.app.machine import checked_target, gpus_for
from tuner.errors import TunerError, UsageError
from tuner.scratch import hold
from tuner.settings import Settings
from tuner.target.capability import serves
from tuner.target.detect import declared_targets
from tuner.workers.fleet import session
from tuner.workers.fleet.channel import spawn
from tuner.workers.fleet.machine import plan_gpus, plan_machine, usable_nodes
from tuner.workers.fleet.messages import HostPlan
from tuner.workers.fleet.notices import ClusterLost, FleetRefused, Notice
from tuner.workers.jobs.timeline import versions

STOP_S = 15.0  # for the host to leave the cluster, before it is killed
REJOIN_S = 900.0  # for which a lost cluster is tried again
PAUSE_S = 3.0  # between two tries
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
ADDRESS = re.compile(r"[A-Za-z0-9._\-\[\]:]+:[0-9]{1,5}\Z")


class WorkerRefused(TunerError):
    """The cluster cannot be joined, or its driver refuses this machine. The text says why."""

    code = "worker_refused"


def labels_of(given: Sequence[str]) -> Mapping[str, str]:
    """`NAME=VALUE` texts as a mapping. Raises UsageError."""
    labels = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (NAME.match(name) and equals):
            raise UsageError(f"label {text!r} is not NAME=VALUE")
        labels[name] = value
    return labels


def join(
    settings: Settings,
    *,
    name: str,
    node_ip: str,
    labels: Mapping[str, str],
    note: Callable[[str], None],
) -> None:
    """Works for the cluster until SIGINT or SIGTERM.

    `note` gets what happens. Raises UsageError, WorkerRefused.
    """
    name = name or re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:63]
    if not ADDRESS.match(settings.address):
        raise UsageError(
            f"address {settings.address!r} is not HOST:PORT; name the cluster with --address"
        )
    if not NAME.match(name):
        raise UsageError(
            f"worker name {name!r}: give letters, digits, dots, dashes and underscores, 63 at most"
        )
    target = checked_target(settings, elsewhere=True)
    gpus = gpus_for(target)
    if target.on_device and not gpus:
        raise UsageError(
            f"target {settings.target!r} cannot be measured on this machine, which has no such "
            f"GPU; use cpu"
        )
    nodes = usable_nodes()
    if gpus:
        here = plan_gpus(nodes, gpus, builders=settings.builders)
    else:
        here = plan_machine(nodes, threads=1, declared=settings.lanes, builders=settings.builders)
    plan = HostPlan(
        name=name,
        address=settings.address,
        lanes=here.lanes,
        builder_cores=here.builder_cores,
        alternates=here.alternates,
        target=target.key,
        serves=tuple(
            declared.key
            for declared in declared_targets(settings.microarchitectures)
            if serves(target, declared)
        ),
        versions=versions(),
        labels=labels,
        storage="",
        node_ip=node_ip,
    )
    _stay_joined(plan, note)


def _stay_joined(plan: HostPlan, note: Callable[[str], None]) -> None:
    """Joins, and joins again whenever the cluster is lost.

    It is lost when its head restarts, the network fails, or this machine's node dies.
    Raises WorkerRefused where it cannot be joined the first time, or for REJOIN_S.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(0))
    deadline: float | None = None  # of joining again; None until it was joined once
    while True:
        lost = _join_once(plan, note)
        deadline = time.monotonic() + REJOIN_S if lost.joined else deadline
        if deadline is None or time.monotonic() > deadline:
            raise WorkerRefused(lost.reason)
        note(f"{lost.reason}; joining again")
        time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class _Lost:
    """How a membership of the cluster ended."""

    joined: bool  # before it was lost
    reason: str


def _join_once(plan: HostPlan, note: Callable[[str], None]) -> _Lost:
    """Joins the cluster and stays until it is lost.

    Raises WorkerRefused where the driver refuses this machine.
    """
    folder, joined = session.make_session(), False
    held = hold(folder)
    environment = session.driver_environment(folder, local=False)
    with (folder / "host.log").open("wb") as log:
        child = spawn(
            "tuner.workers.fleet.host",
            str(folder),
            directory=folder / "empty",
            environment=environment,
            output=log,
            flags=("-P",),
        )
    try:
        child.connection.send(plan)
        while True:
            notice: Notice = child.connection.recv()
            if isinstance(notice, FleetRefused):
                raise WorkerRefused(notice.message)
            if isinstance(notice, ClusterLost):
                return _Lost(joined, f"worker {plan.name}: {notice.message}")
            note(notice.message)
            joined = True
    except (EOFError, OSError):
        log_end = (
            (folder / "host.log").read_text(errors="replace")[-2000:].strip()
            if folder.exists()
            else ""
        )
        return _Lost(
            joined, f"worker {plan.name} could not join {plan.address}, or lost it: {log_end}"
        )
    finally:
        child.stop(grace_s=STOP_S)
        session.remove_session(folder)
        os.close(held)
