"""Devices of the settings, and the agent's program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.agents import built, native_agent, native_target
from tests.support.emulated import needs
from tests.support.measured_target import TARGET
from tuner.app.devices import declared_cpu, device_lanes, devices_of
from tuner.cli.workloads import check_devices, device_setting
from tuner.errors import UsageError
from tuner.settings import Settings, load_settings
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
    check_devices(None, "cpu")
    with pytest.raises(UsageError, match="the target is cuda"):
        check_devices(["x"], "cuda")
    with pytest.raises(UsageError, match="'cpu' is this machine"):
        declared_cpu(Settings())
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
