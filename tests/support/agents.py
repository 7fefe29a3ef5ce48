"""Agents for tests: on this machine, and under an emulator."""

from __future__ import annotations

import platform
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.support.emulated import emulator, needs
from tuner.measure.assignment import Device
from tuner.runtime.agent_program import agent_program
from tuner.target.detect import parse_target
from tuner.target.target import Target

# A declared CPU that machines of an architecture are, with nothing that some of them lack.
NATIVE = {"x86_64": "x86-64-v2"}


def native_target() -> Target:
    """A declared CPU that this machine is. Skips the test where there is none."""
    if platform.machine() not in NATIVE:
        pytest.skip(f"no declared CPU stands for every {platform.machine()}")
    return parse_target(f"cpu:{NATIVE[platform.machine()]}")


def native_agent() -> Device:
    """The agent of this machine."""
    return Device(command=(str(built(native_target().name)),))


def emulated_agent(name: str) -> Device:
    """The agent of a declared CPU under QEMU. Skips the test where that is missing."""
    needs(name)
    target = parse_target(f"cpu:{name}")
    return Device(command=(*emulator(target), str(built(target.name))))


@cache
def built(name: str) -> Path:
    """The agent's program for a declared CPU."""
    path = Path(tempfile.mkdtemp(prefix="tuner-agent-"), "tuner-agent")
    path.write_bytes(agent_program(parse_target(name)))
    path.chmod(0o755)
    return path
