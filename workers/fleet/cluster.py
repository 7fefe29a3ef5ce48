"""Ray, started for the command that needs it and stopped with it: local, quiet, on
loopback only and with its own token.

Used inside the driver process (driver.py) alone, in the directory and environment of session.py.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import ray
from ray._private.node import Node
from ray.exceptions import GetTimeoutError, RpcError

from tuner.errors import TunerError

OBJECT_STORE_BYTES = (
    80 * 2**20
)  # about the least Ray accepts; payloads travel as files, or are small
JOIN_TIMEOUT_S = 120.0  # some 10 s on an idle machine; a node that dies is noticed at once
NODE_STARTS = 3  # Ray gives a node half a minute, which a machine that is overloaded exceeds
LEAVE_TIMEOUT_S = 8.0
END_TIMEOUT_S = 2.0
WATCH_S = 1.0  # between two looks at whether the node still lives
BYSTANDERS = ("start_monitor", "start_api_server", "start_log_monitor")
VITAL = ("raylet", "gcs_server")  # names of processes without which nothing works
NAMESPACE = "tuner"
COMMON: Mapping[str, Any] = MappingProxyType(
    {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": NAMESPACE}
)


class ClusterUnreachable(TunerError):
    """The Ray cluster at the given address does not answer, or does not accept the token."""

    code = "cluster_unreachable"


def start(session: Path, *, cpus: int) -> Callable[[], bool]:
    """Starts a local Ray, which takes about 2 s. Tells, whenever asked, whether its processes live.

    Ray itself does not: a driver that only waits for futures learns nothing of its node's death.
    """
    with _without_bystanders():
        ray.init(
            address="local",
            include_dashboard=False,
            num_cpus=cpus,
            num_gpus=0,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=str(session / "ray"),
            **COMMON,
        )
    vital = [process for process in psutil.Process().children(recursive=True) if _is_vital(process)]
    return lambda: all(map(_lives, vital))


@contextmanager
def _without_bystanders() -> Iterator[None]:
    """A head started within the block has no autoscaler, dashboard and log collector.

    Nobody here asks them anything, and they take a second of the start of every job and
    200 MB. Ray has no setting for it; a Ray that names these methods differently starts
    them all.
    """
    started = {name: getattr(Node, name) for name in BYSTANDERS if hasattr(Node, name)}
    for name in started:
        setattr(Node, name, _start_nothing)
    try:
        yield
    finally:
        for name, method in started.items():
            setattr(Node, name, method)


def _start_nothing(node: Node, *_: object, **__: object) -> None:
    """In the place of a method of Ray's."""


def _is_vital(process: psutil.Process) -> bool:
    try:
        return process.name() in VITAL
    except psutil.NoSuchProcess:  # Ray starts processes that end at once, too
        return False


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.is_running())
    except psutil.NoSuchProcess:
        return False


def join(
    session: Path, address: str, *, resources: Mapping[str, float], node_ip: str = ""
) -> subprocess.Popen[bytes]:
    """Makes this machine a node of the cluster at `address` and this process a driver
    there: the node's process.

    Ray wants a node of its own where a driver runs. All that the node writes lies in
    the session's directory: nodes that share one fall over each other's sockets, and a
    driver tells its own node from another of the same machine by it. The token comes
    from the environment. Raises ClusterUnreachable.
    """
    directory = str(session / "ray")
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        f"--address={address}",
        "--block",
        "--disable-usage-stats",
    ]
    command += ["--num-cpus=0", "--num-gpus=0", f"--object-store-memory={OBJECT_STORE_BYTES}"]
    command += [
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]  # any free ones: two nodes may share a machine
    command += [f"--resources={json.dumps(dict(resources))}", f"--temp-dir={directory}"]
    command += [f"--node-ip-address={node_ip}"] if node_ip else []
    where = {"_node_ip_address": node_ip} if node_ip else {}
    node = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    deadline, left, error = time.monotonic() + JOIN_TIMEOUT_S, NODE_STARTS - 1, ""
    while time.monotonic() < deadline and (node.poll() is None or left):
        if node.poll() is not None:
            left -= 1
            node = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            ray.init(address=address, _temp_dir=directory, **where, **COMMON)
            return node
        except (ConnectionError, RuntimeError, ValueError, RpcError) as failed:
            error = f"{type(failed).__name__}: {failed}"
            time.sleep(0.5)
    leave(node)
    raise ClusterUnreachable(
        f"cannot join the cluster at {address}; is its address right, and the token the "
        f"same? {error}"
    )


def answer(
    reference: Any, node: subprocess.Popen[bytes], *, timeout_s: float = JOIN_TIMEOUT_S
) -> Any:
    """What an actor on this machine's node answers. Raises ClusterUnreachable as soon
    as the node is gone, or when time is up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if node.poll() is not None:
            raise ClusterUnreachable(f"this machine's Ray node ended with status {node.returncode}")
        with suppress(GetTimeoutError):
            return ray.get(reference, timeout=min(WATCH_S, timeout_s))
    raise ClusterUnreachable(
        f"an actor on this machine's Ray node did not answer within {timeout_s:g} s"
    )


def leave(node: subprocess.Popen[bytes]) -> None:
    """Takes this machine out of the cluster, with all that runs on it."""
    stop()
    node.terminate()
    try:
        node.wait(timeout=LEAVE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()


def stop() -> None:
    with suppress(ConnectionError, OSError):
        ray.shutdown()


def end() -> None:
    """Ends a local Ray and all that descends from it at once. Its own way of shutting
    down takes a second, and nothing of it is kept."""
    own = psutil.Process().children()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(own, timeout=END_TIMEOUT_S)  # theirs are reaped by whoever inherits them
