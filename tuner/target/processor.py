"""What the operating system says of the processor: /proc/cpuinfo, caches, usable cores.

Caches are from sysfs, cores from affinity and the cgroup's quota. Only raw facts:
virtual machines hide model names and caches, so whoever judges them needs what was
reported. Every reader takes the root of the file tree, so that tests can read recorded
machines.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A processor as the operating system describes it."""

    architecture: str  # as the kernel names it: "x86_64", "aarch64"
    # "AuthenticAMD", "GenuineIntel"; the implementer's number on Arm, e.g. "0x41"; empty
    # where not reported
    vendor: str
    family: int  # as cpuid gives it; the architecture version on Arm; 0 where not reported
    model: int  # as cpuid gives it; the part number on Arm; 0 where not reported
    stepping: int  # as cpuid gives it; the revision on Arm; 0 where not reported
    model_name: str  # for people; hypervisors shorten it
    flags: frozenset[str]  # as the kernel spells them


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """Sizes in bytes as the first core sees them; 0 where the machine does not tell."""

    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    line_bytes: int


def read_processor(root: Path = ROOT, architecture: str | None = None) -> Processor:
    """The first processor of /proc/cpuinfo. What the file lacks is empty or 0."""
    fields: dict[str, str] = {}
    path = root / "proc/cpuinfo"
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return Processor(
        architecture=architecture or platform.machine(),
        vendor=fields.get("vendor_id", fields.get("cpu implementer", "")),
        family=_number(fields.get("cpu family", fields.get("cpu architecture", ""))),
        model=_number(fields.get("model", fields.get("cpu part", ""))),
        stepping=_number(fields.get("stepping", fields.get("cpu revision", ""))),
        model_name=fields.get("model name", ""),
        flags=frozenset(fields.get("flags", fields.get("features", "")).split()),
    )


def read_caches(root: Path = ROOT) -> Caches:
    """The caches of the first core; sizes of 0 where the machine does not say."""
    sizes: dict[int, int] = {}
    line_bytes = 0
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if _text(index / "type") in ("Data", "Unified"):
            sizes[_number(_text(index / "level"))] = _size(_text(index / "size"))
            line_bytes = line_bytes or _number(_text(index / "coherency_line_size"))
    return Caches(
        l1d_bytes=sizes.get(1, 0),
        l2_bytes=sizes.get(2, 0),
        l3_bytes=sizes.get(3, 0),
        line_bytes=line_bytes,
    )


def usable_cores(root: Path = ROOT) -> tuple[int, ...]:
    """The cores that this process may run on, at least one.

    Cut to the whole cores of its cgroup's CPU quota.
    """
    cores = tuple(sorted(os.sched_getaffinity(0)))
    quota = cgroup_quota(root)
    return cores if quota is None else cores[: max(1, int(quota))]


def cgroup_quota(root: Path = ROOT) -> float | None:
    """The CPU time, in cores, that the tightest enclosing control group allows.

    None when unlimited. Reads `cpu.max` of version 2 and `cpu.cfs_quota_us` of version
    1.
    """
    quotas: list[float] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        unified = not controllers
        if not unified and "cpu" not in controllers.split(","):
            continue
        bases = (
            ("sys/fs/cgroup", "sys/fs/cgroup/unified")
            if unified
            else ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct")
        )
        for base in bases:
            group = root / base / path.strip("/")
            while group.is_relative_to(root / base):
                quotas += _quota_v2(group) if unified else _quota_v1(group)
                group = group.parent
    return min(quotas, default=None)


def _quota_v2(group: Path) -> list[float]:
    words = _text(group / "cpu.max").split()
    return [int(words[0]) / int(words[1])] if len(words) == 2 and words[0] != "max" else []


def _quota_v1(group: Path) -> list[float]:
    quota = _number(_text(group / "cpu.cfs_quota_us"))
    period = _number(_text(group / "cpu.cfs_period_us"))
    return [quota / period] if quota > 0 and period > 0 else []


def _text(path: Path) -> str:
    """The file's text without the newline, empty where it cannot be read.

    sysfs files come and go with the kernel.
    """
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def _size(text: str) -> int:
    """Bytes of sysfs' "48K" or "32M"."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return _number(text.rstrip("KMG")) * scale
