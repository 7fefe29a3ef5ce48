"""RAPL's counters as Linux shows them, in a folder of their form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.measure.energy import (
    NoEnergyCounters,
    joules_between,
    package_counters,
    readings,
)


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
