"""RAPL's counters as Linux shows them, in a folder of their form; NVML's of a double."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.device.machine import needs_compiler
from tuner.measure.energy import (
    BoardCounter,
    NoEnergyCounters,
    board_counter,
    joules_between,
    package_counters,
    readings,
)
from tuner.runtime import nvml


def zone(powercap: Path, folder: str, name: str, energy_uj: str = "1000000") -> Path:
    path = powercap / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text("9999999\n")
    (path / "energy_uj").write_text(f"{energy_uj}\n")
    return path / "energy_uj"


def test_packages_count_once_and_begin_again_at_their_range(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0")
    second = zone(tmp_path, "intel-rapl:1", "package-1", "9500000")
    zone(tmp_path, "intel-rapl:0:0", "core")
    zone(tmp_path, "intel-rapl:2", "psys")
    (tmp_path / "intel-rapl").mkdir()  # the control type, which has no name
    counters = package_counters(tmp_path)
    before = readings(counters)
    first.write_text("3500000\n")
    second.write_text("500000\n")
    assert len(counters) == 2
    assert joules_between(counters, before, readings(counters)) == pytest.approx(2.5 + 1.0)


def test_a_machine_without_counters_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NoEnergyCounters, match=r"nowhere has no zone package-0.*virtual machine"):
        package_counters(tmp_path / "nowhere")
    zone(tmp_path, "dtpm", "dtpm")
    with pytest.raises(NoEnergyCounters, match="has no zone package-0"):
        package_counters(tmp_path)


def test_counters_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", "none").unlink()
    with pytest.raises(NoEnergyCounters, match=r"intel-rapl:0/energy_uj cannot be read .*root"):
        package_counters(tmp_path)


@pytest.fixture
def management(doubles: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process find the double of NVML."""
    folder = Path(doubles["LD_LIBRARY_PATH"].split(":")[0])
    monkeypatch.setattr(nvml, "LIBRARY", str(folder / nvml.LIBRARY))


@needs_compiler
@pytest.mark.usefixtures("management")
def test_a_gpu_counts_what_its_board_takes() -> None:
    counter, moments_s, readings = board_counter("0000:01:00.0"), [time.monotonic()], []
    for pause_s in (0.05, 0.0):
        readings.append(counter.read())
        moments_s.append(time.monotonic())
        time.sleep(pause_s)
        moments_s.append(time.monotonic())
    # Each reading was taken between two moments; 100 W, of which the counter tells a millisecond.
    least_s, most_s = moments_s[2] - moments_s[1], moments_s[3] - moments_s[0]
    assert 100 * least_s - 0.2 <= counter.joules(*readings) <= 100 * most_s + 0.2


@needs_compiler
@pytest.mark.usefixtures("management")
def test_a_gpu_without_a_counter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoEnergyCounters, match=r"NVML has none of 0001:00:00\.0"):
        board_counter("0001:00:00.0")  # no such place
    monkeypatch.setenv("DOUBLE_WITHOUT_ENERGY", "1")
    with pytest.raises(NoEnergyCounters, match="older than Volta; choose another objective"):
        board_counter("0000:01:00.0")


def test_without_nvml_a_gpu_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libno-such-library.so")
    with pytest.raises(NoEnergyCounters, match=r"libnvidia-ml\.so\.1 is missing"):
        BoardCounter(pci="0000:01:00.0").read()
