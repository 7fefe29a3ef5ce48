"""The devices that the settings name, as lanes."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.measure.assignment import Device, Lane
from tuner.measure.device.connection import Connection
from tuner.measure.device.identity import unsuitable
from tuner.measure.device.runner import DeviceRunner
from tuner.runtime.agent_program import agent_program
from tuner.settings import Settings
from tuner.target.capability import is_declared, refuse_unmeasured
from tuner.target.detect import parse_target
from tuner.target.target import Target

SEPARATOR = ";"  # of several commands in one setting


def devices_of(settings: Settings) -> tuple[Device, ...]:
    """The devices by their commands, which start in the working directory.

    Raises UsageError for a text that is no command.
    """
    devices = []
    for text in filter(str.strip, settings.device.split(SEPARATOR)):
        try:
            command = tuple(shlex.split(text))
        except ValueError as error:
            raise UsageError(f"device {text!r} is no command: {error}") from error
        devices.append(Device(command=command, folder=os.getcwd()))
    return tuple(devices)


def device_lanes(settings: Settings, target: Target) -> tuple[Lane, ...]:
    """A lane for each device, which is asked whether it is of the target's kind.

    None where no device is named, and for a target that is no declared CPU. Raises
    UsageError for one that is another machine than the target's, DeviceError for one that
    cannot be reached.
    """
    if target.on_device or not is_declared(target):
        return ()
    names: list[str] = []
    return tuple(_lane(device, target, names) for device in devices_of(settings))


def _lane(device: Device, target: Target, names: list[str]) -> Lane:
    with Connection(device) as connection:
        facts = connection.facts
    reason = unsuitable(facts, target)
    if reason is not None:
        raise UsageError(f"device {device.text!r} does not measure for {target.name}: {reason}")
    name = f"device:{facts.host}"
    same = sum(other == name or other.startswith(f"{name}#") for other in names)
    names.append(name if not same else f"{name}#{same + 1}")
    return Lane(
        name=names[-1],
        cores=tuple(range(facts.cores)),
        device=replace(device, memory_bytes=facts.memory_bytes),
    )


def build_agent(settings: Settings, path: Path) -> int:
    """Writes the agent for the settings' target, executable; its bytes.

    Raises UsageError for a target that is no declared CPU, and for a file that cannot be
    written; LinkError where the compiler is missing or refuses.
    """
    program = agent_program(declared_cpu(settings))
    try:
        path.write_bytes(program)
        path.chmod(0o755)
    except OSError as error:
        raise UsageError(f"cannot write the agent: {error}") from error
    return len(program)


def findings(settings: Settings) -> list[dict[str, Any]]:
    """What each of the settings' devices is: lane, architecture, cores, memory, isolation.

    Raises UsageError without a device, and for one that does not suit the target;
    DeviceError for one that cannot be reached.
    """
    target = declared_cpu(settings)
    rows = []
    for lane in device_lanes(settings, target):
        assert lane.device is not None, "the lane of a device has one"
        with DeviceRunner(lane.device) as runner:
            facts = runner.start().facts
            isolation = runner.isolate(settings.isolation)
        rows.append(
            {
                "lane": lane.name,
                "command": lane.device.text,
                "architecture": facts.architecture,
                "cores": facts.cores,
                "memory_bytes": facts.memory_bytes,
                "isolation": isolation,
            }
        )
    if not rows:
        raise UsageError("no device is named; give --device 'ssh HOST ./tuner-agent'")
    return rows


def declared_cpu(settings: Settings) -> Target:
    """The settings' target. Raises UsageError unless it is a declared CPU with an agent."""
    target = parse_target(settings.target, settings.microarchitectures)
    if target.on_device or not is_declared(target):
        raise UsageError(
            f"target {settings.target!r} is this machine; an agent is for a declared CPU, such "
            f"as --target cpu:neoverse-n1 (tuner targets lists them)"
        )
    refuse_unmeasured(target)
    return target
