"""Devices of the settings, and the agent's program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agents import built, emulated_agent, native_agent, native_target
from tests.support.emulated import EMULATORS, emulator, needs
from tests.support.measured_target import TARGET
from tests.support.targets import host_target
from tuner.app.devices import declared_cpu, device_lanes, devices_of
from tuner.cli.workloads import check_devices, device_setting
from tuner.errors import UsageError
from tuner.measure.assignment import Device
from tuner.measure.device.connection import Connection
from tuner.measure.device.identity import unsuitable
from tuner.runtime import agent_program
from tuner.runtime.link import toolchain_for
from tuner.settings import Settings, load_settings
from tuner.target.capability import serves
from tuner.target.detect import parse_target
from tuner.workers.fleet.machine import plan_devices

NEWEST_GLIBC = (2, 34)  # of 2021, where threads and dlopen became part of libc itself


def test_commands_become_devices_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    setting = device_setting(["ssh pi ./tuner-agent", "ssh -p 22 'other pi' agent"])
    assert setting is not None
    first, second = devices_of(Settings(device=setting))
    assert first.command == ("ssh", "pi", "./tuner-agent") and first.folder == str(tmp_path)
    assert second.command == ("ssh", "-p", "22", "other pi", "agent")
    assert second.text == "ssh -p 22 'other pi' agent"
    assert devices_of(Settings()) == () and device_setting(None) is None
    with pytest.raises(UsageError, match="is no command"):
        devices_of(Settings(device="ssh 'pi"))
    for command in ("a; b", " "):
        with pytest.raises(UsageError, match="must be one command"):
            device_setting([command])


def test_devices_are_for_declared_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    check_devices(["x"], "cpu:neoverse-n1")
    check_devices(["x"], "CPU:neoverse-n1 ")  # as a target may be written
    check_devices(None, "cpu")
    with pytest.raises(UsageError, match="the target is cuda"):
        check_devices(["x"], "cuda")
    with pytest.raises(UsageError, match="'cpu' is this machine"):
        declared_cpu(Settings())
    with pytest.raises(UsageError, match="kernels of cpu:wasm32 are not measured"):
        declared_cpu(Settings(target="cpu:wasm32"))
    never = Settings(device="no such command")
    assert device_lanes(never, TARGET) == ()
    assert device_lanes(never, parse_target("cuda:sm_90")) == ()


def test_each_device_is_a_lane_and_all_cores_here_build() -> None:
    command = native_agent().text
    target = native_target()
    lanes = device_lanes(Settings(device=f"{command}; {command}"), target)
    assert len(lanes) == 2 and lanes[1].name == f"{lanes[0].name}#2"
    assert lanes[0].name.startswith("device:") and lanes[0].device is not None
    plan = plan_devices([[0, 1], [2, 3]], lanes)
    assert plan.lanes == lanes and plan.builder_cores == (0, 1, 2, 3) and not plan.lent_cores
    assert plan_devices([[0, 1, 2]], lanes, builders=2).builder_cores == (0, 1)
    with pytest.raises(UsageError, match="does not measure for cpu:neoverse-n1: it is"):
        device_lanes(Settings(device=command), parse_target("cpu:neoverse-n1"))


def test_a_folder_cannot_name_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote its files would run it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project, user = tmp_path / "project", tmp_path / "config" / "tuner"
    for folder in (project, user):
        folder.mkdir(parents=True)
    (user / "tuner.toml").write_text('device = "ssh pi agent"\n')
    assert load_settings(directory=project).values.device == "ssh pi agent"
    (project / "tuner.toml").write_text('device = "rm -r /"\n')
    with pytest.raises(UsageError, match="must not run it"):
        load_settings(directory=project)
    with pytest.raises(UsageError, match="must not run it"):
        load_settings({"device": "mine"}, directory=project)


@pytest.mark.parametrize("name", ["neoverse-n1", "rv64gcv"])
def test_the_agent_is_small_and_needs_no_new_system(name: str) -> None:
    needs(name)
    program = built(f"cpu:{name}")
    assert program.stat().st_size < 2 << 20
    shown = subprocess.run(
        ["readelf", "-VW", "-d", str(program)], capture_output=True, text=True, check=True
    ).stdout
    versions = {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", shown)}
    assert versions and max(versions) <= NEWEST_GLIBC
    needed = set(re.findall(r"Shared library: \[(\w+)", shown))
    assert {"libc", "libm"} <= needed <= {"libc", "libm", "libpthread", "libdl", "ld"}


@pytest.mark.parametrize("name", ["neoverse-v1-sve", "a64fx"])
def test_limits_are_those_of_the_vectors_that_kernels_have(name: str) -> None:
    """NEON's are a quarter of the A64FX's: a good kernel would be implausible beside them."""
    device = emulated_agent(name)
    objdump = f"{toolchain_for(parse_target(f'cpu:{name}')).prefix}objdump"
    shown = subprocess.run(
        [objdump, "-d", device.command[-1]], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"fm(la|ad)\s+z\d+\.s", shown)
    with Connection(device) as connection:
        assert len(connection.limits(0.1, 16 << 10)) == 6


def test_an_agent_that_was_compiled_without_the_vectors_has_no_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("a64fx")
    monkeypatch.setattr(agent_program, "_flags", lambda tools, target: agent_program.FAST)
    target, program = parse_target("cpu:a64fx"), tmp_path / "agent"
    program.write_bytes(agent_program.agent_program(target))
    program.chmod(0o755)
    with Connection(Device(command=(*emulator(target), str(program)))) as connection:
        assert connection.limits(0.1, 16 << 10) == ()


def test_a_core_without_vectors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many boards of RISC-V: kernels would end with an illegal instruction, all of them."""
    target = parse_target("cpu:rv64gcv")
    (lane,) = device_lanes(Settings(device=emulated_agent("rv64gcv").text), target)
    assert lane.device is not None
    monkeypatch.setitem(EMULATORS, "rv64gcv", ("qemu-riscv64", "-cpu", "rv64,v=false"))
    with pytest.raises(UsageError, match="it lacks v, which cpu:rv64gcv has"):
        device_lanes(Settings(device=emulated_agent("rv64gcv").text), target)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_an_agent_has_the_features_that_detection_finds(level: str) -> None:
    target = parse_target(f"cpu:{level}")
    with Connection(native_agent()) as connection:
        assert (unsuitable(connection.facts, target) is None) == serves(host_target(), target)


REFUSED = 77  # the exit code where only root may have a namespace of host names
RENAMED = f"""
import ctypes, os, socket, sys
if ctypes.CDLL(None).unshare(0x04000000): sys.exit({REFUSED})
socket.sethostname(sys.argv[1])
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("name", "host"), [("(none)", "unnamed"), ("-x", "unnamed"), ("pi_4.lan-1", "pi_4.lan-1")]
)
def test_a_board_without_a_proper_name_is_a_device(name: str, host: str) -> None:
    command = (sys.executable, "-S", "-c", RENAMED, name, *native_agent().command)
    tried = subprocess.run([*command[:4], name, "/bin/true"], check=False)
    if tried.returncode == REFUSED:
        pytest.skip("only root may give a process a host name of its own here")
    assert tried.returncode == 0
    with Connection(Device(command=command)) as connection:
        assert connection.facts.host == host
