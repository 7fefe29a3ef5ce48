"""`tuner worker`: a host process that joins the cluster, watched until it ends or this
process is told to."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuner.app.machine import checked_target, gpus_for
from tuner.errors import TunerError, UsageError
from tuner.settings import Settings
from tuner.target.capability import serves
from tuner.target.detect import declared_targets
from tuner.workers.fleet import session
from tuner.workers.fleet.channel import spawn
from tuner.workers.fleet.machine import plan_gpus, plan_machine, usable_nodes
from tuner.workers.fleet.messages import HostPlan
from tuner.workers.fleet.notices import ClusterLost, FleetRefused, Notice
from tuner.workers.jobs.timeline import versions

STOP_S = 15.0  # for the host to leave the cluster in good order
REJOIN_S = 900.0  # for which a cluster that was lost is looked for again
PAUSE_S = 3.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
ADDRESS = re.compile(r"[A-Za-z0-9._\-\[\]:]+:[0-9]{1,5}\Z")


class WorkerRefused(TunerError):
    """The cluster's driver does not work with this machine, or the cluster cannot be
    joined; the text says why."""

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
    said: Callable[[str], None],
) -> None:
    """Until SIGINT or SIGTERM. `said` gets what happens. Raises UsageError, WorkerRefused."""
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
        serves=tuple(declared.key for declared in declared_targets() if serves(target, declared)),
        versions=versions(),
        labels=labels,
        storage="",
        node_ip=node_ip,
    )
    _attend(plan, said)


def _attend(plan: HostPlan, said: Callable[[str], None]) -> None:
    """Joins, and joins again whenever the cluster is lost: its head restarted, the
    network cut, this machine's node killed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(0))
    until: float | None = (
        None  # to when joining again is tried; a first time that fails is the operator's to see
    )
    while True:
        lost = _join_once(plan, said)
        until = time.monotonic() + REJOIN_S if lost.joined else until
        if until is None or time.monotonic() > until:
            raise WorkerRefused(lost.reason)
        said(f"{lost.reason}; joining again")
        time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class _Lost:
    joined: bool  # before it was lost
    reason: str


def _join_once(plan: HostPlan, said: Callable[[str], None]) -> _Lost:
    """From joining to losing the cluster. Raises WorkerRefused where a driver does not
    want this machine."""
    folder, joined = session.make_session(), False
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
            said(notice.message)
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
