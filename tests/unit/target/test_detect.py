"""Detection: this machine agrees with LLVM, recorded machines give their names, the key
is stable, bad targets are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.target.architectures.table import architecture_named
from tuner.target.architectures.x86_64.architecture import X86_64
from tuner.target.architectures.x86_64.models import (
    AVX2,
    AVX512,
    BF16,
    FEATURES,
    FP16,
    VNNI,
    llvm_cpu,
)
from tuner.target.detect import detect_cpu, parse_target, target_key
from tuner.target.processor import Processor, cgroup_quota, read_caches, read_processor


def processor(vendor: str, family: int, model: int, flags: frozenset[str]) -> Processor:
    return Processor(
        architecture="x86_64",
        vendor=vendor,
        family=family,
        model=model,
        stepping=1,
        model_name="CPU",
        flags=flags,
    )


def test_this_machine_agrees_with_llvm() -> None:
    """LLVM goes by the number of the model, which a hypervisor may make up, and whose
    features it may hide: its name then tells less or more than the machine has."""
    codegen, target = pytest.importorskip("tvm.target.codegen"), pytest.importorskip("tvm.target")

    def features(name: str) -> set[str]:
        return set(
            codegen.llvm_get_cpu_features(target.Target({"kind": "llvm", "mcpu": name}))
        ) & set(FEATURES.values())

    detected, theirs = detect_cpu(), codegen.llvm_get_system_cpu()
    ours = str(detected.tvm["mcpu"])
    assert features(ours) <= set(detected.isa)
    more = features(theirs) - set(detected.isa)
    assert ours == theirs or features(theirs) < features(ours) or more


def test_this_machine_is_complete() -> None:
    target = detect_cpu()
    assert target.kind == "cpu" and target.limits is None
    assert 1 <= target.cores <= (os.cpu_count() or 1)
    assert (target.vector_bytes, target.vector_registers) in {
        (64, 32),
        (32, 16),
        (16, 16),
        (16, 32),
    }
    assert 0 < target.l1d_bytes < target.l2_bytes
    assert target.key == target_key(target.fingerprint)


def test_key_is_the_same_in_another_process_with_less_affinity() -> None:
    core = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{core}}}); from tuner.target.detect import "
        f"detect_cpu; "
        "t = detect_cpu(); print(t.key, t.cores)"
    )
    root = Path(__file__).parents[3]
    printed = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=root,
    )
    assert printed.stdout.split() == [detect_cpu().key, "1"]


def test_fingerprint_holds_nothing_that_changes() -> None:
    names = set(detect_cpu().fingerprint)
    assert not names & {"frequency", "mhz", "hostname", "microcode", "bogomips"}


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "name"),
    [
        ("AuthenticAMD", 26, 2, BF16 | {"avx_vnni"}, "znver5"),
        ("AuthenticAMD", 0x19, 0x11, BF16, "znver4"),
        ("AuthenticAMD", 0x19, 0x01, AVX2, "znver3"),
        ("AuthenticAMD", 0x17, 0x31, AVX2, "znver2"),
        ("GenuineIntel", 6, 0x55, AVX512, "skylake-avx512"),
        ("GenuineIntel", 6, 0x55, VNNI, "cascadelake"),
        ("GenuineIntel", 6, 0x8F, BF16 | {"avx512_fp16", "amx_tile"}, "sapphirerapids"),
        ("GenuineIntel", 6, 0xA7, VNNI, "rocketlake"),
        (
            "GenuineIntel",
            6,
            0xA7,
            FP16,
            "sapphirerapids",
        ),  # a hypervisor that gives a newer core this number
        ("GenuineIntel", 6, 0xFE, FP16, "sapphirerapids"),  # a model newer than the table
        ("GenuineIntel", 6, 0xFE, VNNI, "cascadelake"),
        (
            "GenuineIntel",
            6,
            0xFE,
            AVX2 | {"avx_vnni"},
            "alderlake",
        ),  # an instruction no x86-64 level has
        ("AuthenticAMD", 27, 1, FP16 | {"avx_vnni"}, "znver5"),
        ("AuthenticAMD", 26, 2, AVX2, "x86-64-v3"),  # a hypervisor that hides AVX-512
        ("Nobody", 99, 1, AVX512, "x86-64-v4"),
        ("Nobody", 99, 1, frozenset({"sse4_2"}), "x86-64-v2"),
        ("Nobody", 99, 1, frozenset(), "x86-64"),
    ],
)
def test_names_of_known_processors(
    vendor: str, family: int, model: int, flags: frozenset[str], name: str
) -> None:
    assert llvm_cpu(processor(vendor, family, model, flags)) == name


def test_isa_is_in_llvm_spelling_and_sorted() -> None:
    isa = X86_64.isa_features(processor("AuthenticAMD", 26, 2, BF16 | {"sse4_1", "syscall"}))
    assert (
        isa == tuple(sorted(isa))
        and {"avx512bf16", "avx512vnni", "sse4.1"} <= set(isa)
        and "syscall" not in isa
    )


@pytest.mark.parametrize(
    ("isa", "architecture", "shape"),
    [
        (("avx2", "avx512f"), "x86_64", (64, 32)),
        (("avx2",), "x86_64", (32, 16)),
        (("sse2",), "x86_64", (16, 16)),
        (("neon", "sve"), "aarch64", (16, 32)),
    ],
)
def test_vector_shapes(isa: tuple[str, ...], architecture: str, shape: tuple[int, int]) -> None:
    described = architecture_named(architecture).describe(isa, "")
    assert (described.vector_bytes, described.vector_registers) == shape


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(
    ("cpu", "vector_bytes", "units"),
    [("znver4", 64, 1), ("znver4", 32, 2), ("znver5", 64, 2), ("haswell", 32, 2)],
)
def test_multiply_adds_of_a_cycle(cpu: str, vector_bytes: int, units: int) -> None:
    assert X86_64.describe((), cpu).fma_units_of(vector_bytes) == units


def test_reads_an_arm_machine(tmp_path: Path) -> None:
    lines = (
        "processor\t: 0",
        "Features\t: fp asimd sve",
        "CPU implementer\t: 0x41",
        "CPU part\t: 0xd40",
        "CPU revision\t: 1",
    )
    write(tmp_path, "proc/cpuinfo", "\n".join(lines) + "\n")
    processor = read_processor(tmp_path, "aarch64")
    assert (processor.vendor, processor.model, processor.stepping) == (
        "0x41",
        0xD40,
        1,
    ) and "sve" in processor.flags


def test_reads_caches_and_survives_their_absence(tmp_path: Path) -> None:
    assert read_caches(tmp_path).l1d_bytes == 0
    described = [
        (1, "Data", "48K"),
        (1, "Instruction", "32K"),
        (2, "Unified", "1024K"),
        (3, "Unified", "32M"),
    ]
    for index, (level, kind, size) in enumerate(described):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}/"
        for name, text in (
            ("level", str(level)),
            ("type", kind),
            ("size", size),
            ("coherency_line_size", "64"),
        ):
            write(tmp_path, folder + name, text + "\n")
    caches = read_caches(tmp_path)
    assert (caches.l1d_bytes, caches.l2_bytes, caches.l3_bytes, caches.line_bytes) == (
        48 << 10,
        1 << 20,
        32 << 20,
        64,
    )


def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/a/b\n")
    write(tmp_path, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    assert cgroup_quota(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/a/cpu.max", "150000 100000\n")
    assert cgroup_quota(tmp_path) == 1.5


def test_quota_of_version_one(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "3:memory:/m\n2:cpu,cpuacct:/job\n")
    write(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n")
    write(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    assert cgroup_quota(tmp_path) == 2.0


def test_targets_by_name() -> None:
    assert parse_target("cpu") == parse_target("LLVM") == detect_cpu()
    hopper, ampere = parse_target("cuda:sm_90"), parse_target("cuda:sm_80")
    assert hopper.kind == "cuda" and hopper.tvm["arch"] == "sm_90" and hopper.key != ampere.key


@pytest.mark.parametrize("text", ["", "cuda:sm_10", "gpu", "cpu:1", "llvm -mcpu=znver4"])
def test_unknown_targets_are_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="cuda:sm_90") as raised:
        parse_target(text)
    assert repr(text) in str(raised.value)
