"""Starts, joins and stops Ray.

A local Ray is quiet, listens on loopback only and has its own token. Used by the driver
process alone, in the directory and environment of `session.py`.
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

# About the least that Ray accepts; payloads are small, or sent as files.
OBJECT_STORE_BYTES = 80 * 2**20
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
    """Starts a local Ray, in about 2 s; returns a function that says whether it lives.

    Ray itself does not notify a driver that only waits for futures of its node's death.
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
    """Keeps a head that starts within the block from starting services that are unused.

    Autoscaler, dashboard and log collector take a second at the start of every job, and
    200 MB. Ray has no setting for it. A version of Ray that names these methods
    differently starts them all.
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
    """Replaces a method of Ray's that starts a service."""


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
    """Makes this machine a node of the cluster at `address`; returns the node's process.

    Ray needs a node where a driver runs. The node writes to the session's directory alone:
    nodes that share a directory conflict over sockets, and a driver identifies its own
    node by it. The token comes from the environment. Raises ClusterUnreachable.
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
    # Any free ports, since two nodes may share a machine.
    command += ["--min-worker-port=0", "--max-worker-port=0"]
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
    """The answer of an actor on this machine's node.

    Raises ClusterUnreachable as soon as the node is gone, or after `timeout_s`.
    """
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
    """Kills a local Ray and all its descendants.

    Its own shutdown takes a second, and nothing needs to be kept.
    """
    own = psutil.Process().children()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(own, timeout=END_TIMEOUT_S)  # theirs are reaped by whoever inherits them
