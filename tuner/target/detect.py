"""This machine as a `Target`, and `--target` texts to targets.

No TVM: the service sizes spaces without a compiler. The fingerprint holds what decides
which code is right and fast, as the machine reported it. It has no frequency, host
name, microcode or anything else that changes between boots or processes. Affinity and
quotas change what may be used, not what the machine is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import psutil

from tuner.errors import UsageError
from tuner.runtime.cuda_driver import NoDriver
from tuner.target.architectures.table import architecture_named
from tuner.target.cuda import cuda_target, cuda_targets
from tuner.target.microarchitectures import cpu_target, declared_cpus
from tuner.target.nvidia import driver_version, gpu_facts, gpu_fingerprint, gpu_target
from tuner.target.processor import ROOT, Processor, read_caches, read_processor, usable_cores
from tuner.target.target import Target

FINGERPRINT_SCHEMA = 1

# Sizes a schedule is planned with where a hypervisor hides the caches: those of small
# cores, so that tiles fit anywhere.
UNKNOWN_L1D_BYTES = 32 << 10
UNKNOWN_L2_BYTES = 256 << 10


def detect_cpu(root: Path = ROOT) -> Target:
    """This machine, without measured limits (`tuner.target.limits` measures those)."""
    processor, caches = read_processor(root), read_caches(root)
    architecture = architecture_named(processor.architecture)
    mcpu, isa = architecture.llvm_cpu(processor), architecture.isa_features(processor)
    described = architecture.describe(isa, mcpu)
    fingerprint: dict[str, str | int] = {
        "schema": FINGERPRINT_SCHEMA,
        "kind": "cpu",
        "architecture": processor.architecture,
        "vendor": processor.vendor,
        "family": processor.family,
        "model": processor.model,
        "stepping": processor.stepping,
        "model_name": processor.model_name,
        "mcpu": mcpu,
        "isa": ",".join(isa),
        "physical_cores": psutil.cpu_count(logical=False) or 0,
        "logical_cores": psutil.cpu_count(logical=True) or 0,
        "l1d_bytes": caches.l1d_bytes,
        "l2_bytes": caches.l2_bytes,
        "l3_bytes": caches.l3_bytes,
        "line_bytes": caches.line_bytes,
    }
    cores = len(usable_cores(root))
    return Target(
        key=target_key(fingerprint),
        kind="cpu",
        name=_name(processor, mcpu, cores),
        tvm={"kind": "llvm", "mcpu": mcpu},
        isa=isa,
        vector_bytes=described.vector_bytes,
        vector_registers=described.vector_registers,
        cores=cores,
        l1d_bytes=caches.l1d_bytes or UNKNOWN_L1D_BYTES,
        l2_bytes=caches.l2_bytes or UNKNOWN_L2_BYTES,
        l3_bytes=caches.l3_bytes,
        fingerprint=fingerprint,
    )


def parse_target(text: str, microarchitectures: Path | None = None) -> Target:
    """The target of a `--target` text.

    "cpu" or "llvm" is this machine, "cuda" its GPU. "cuda:sm_90" and "cpu:neoverse-n1" are
    declared, and need not be present; `microarchitectures` is a user's file of more CPUs.
    Raises UsageError for any other text and a malformed file, and NoDriver where "cuda"
    finds no GPU.
    """
    name = text.strip().lower()
    if name in ("cpu", "llvm"):
        return detect_cpu()
    if name == "cuda":
        return _own_gpu()
    kind, _, arch = name.partition(":")
    if kind == "cuda" and arch in cuda_targets():
        return cuda_target(arch, target_key)
    cpus = declared_cpus(microarchitectures)
    if kind == "cpu" and arch in cpus:
        return cpu_target(arch, cpus[arch], target_key)
    declared = ", ".join(
        [*(f"cuda:{arch}" for arch in cuda_targets()), *(f"cpu:{name}" for name in cpus)]
    )
    raise UsageError(
        f"unknown target {text!r}; use cpu (this machine), cuda (its GPU) or one of {declared}"
    )


def declared_targets(microarchitectures: Path | None = None) -> tuple[Target, ...]:
    """The CPUs and GPUs that need not be present, as targets."""
    cpus = declared_cpus(microarchitectures)
    return (
        *(cpu_target(name, cpu, target_key) for name, cpu in cpus.items()),
        *(cuda_target(arch, target_key) for arch in cuda_targets()),
    )


def _own_gpu() -> Target:
    """This machine's first GPU. Raises NoDriver, which says what else may be asked for."""
    try:
        return detect_gpu()
    except NoDriver as error:
        declared = " or ".join(f"cuda:{arch}" for arch in cuda_targets())
        raise NoDriver(
            f"target 'cuda' is this machine's GPU, and {error}; use cpu, or a declared GPU "
            f"({declared}), whose jobs wait for a machine that has one"
        ) from error


def detect_gpu(ordinal: int = 0) -> Target:
    """A GPU of this machine, by its number from 0, without measured limits.

    Raises NoDriver where there is none.
    """
    return detected_gpu(gpu_facts(ordinal))


def detected_gpu(facts: Mapping[str, int | str]) -> Target:
    """The GPU, or the slice of one, of which the driver said this."""
    driver = driver_version(str(facts["pci"]))
    fingerprint = gpu_fingerprint(facts, driver)
    return gpu_target(facts, driver, key=target_key(fingerprint), fingerprint=fingerprint)


def target_key(fingerprint: Mapping[str, str | int]) -> str:
    """SHA-256 of the fingerprint's canonical JSON, hex."""
    canonical = json.dumps(
        dict(fingerprint), sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def _name(processor: Processor, mcpu: str, cores: int) -> str:
    return (
        f"{processor.model_name or processor.architecture} ({mcpu}, {cores} "
        f"core{'s' if cores != 1 else ''})"
    )
