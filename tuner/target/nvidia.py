"""The GPU of this machine as a target.

From what the driver says of it, and what NVML adds for people. Makes no context. The
fingerprint holds what decides which code is right and fast, and the driver's version.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.runtime.cuda_driver import device_facts
from tuner.runtime.nvml import ManagedDevice
from tuner.target.cuda import REGISTERS_PER_THREAD, STATIC_SHARED_BYTES, VECTOR_BYTES, WARP
from tuner.target.target import Target


def gpu_target(
    facts: Mapping[str, int | str], driver: str, *, key: str, fingerprint: Mapping[str, int | str]
) -> Target:
    """A device's facts as a target; limits are not measured here."""
    arch = f"sm_{facts['capability_major']}{facts['capability_minor']}"
    return Target(
        key=key,
        kind="cuda",
        name=f"{facts['name']} ({arch}, driver {driver or 'unknown'})",
        tvm={
            "kind": "cuda",
            "arch": arch,
            "max_threads_per_block": int(facts["max_threads_per_block"]),
            "max_shared_memory_per_block": min(
                int(facts["max_shared_memory_per_block"]), STATIC_SHARED_BYTES
            ),
            "thread_warp_size": WARP,
        },
        isa=(arch,),
        vector_bytes=VECTOR_BYTES,
        vector_registers=REGISTERS_PER_THREAD,
        cores=int(facts["multiprocessors"]),
        l1d_bytes=int(facts["shared_bytes_per_multiprocessor"]),
        l2_bytes=int(facts["l2_bytes"]),
        l3_bytes=0,
        fingerprint=fingerprint,
    )


def gpu_fingerprint(facts: Mapping[str, int | str], driver: str) -> dict[str, int | str]:
    """What the key of a detected GPU hashes.

    `device` tells it from a declared one.
    """
    same = (
        "multiprocessors", "max_threads_per_block", "max_dynamic_shared_memory_per_block",
        "registers_per_block", "l2_bytes", "memory_bytes", "memory_bus_bits", "clock_khz",
        "memory_clock_khz",
    )  # fmt: skip
    return {
        "schema": 1,
        "kind": "cuda",
        "arch": f"sm_{facts['capability_major']}{facts['capability_minor']}",
        "device": facts["name"],
        "driver": driver,
        **{name: facts[name] for name in same},
    }


def gpu_facts(ordinal: int = 0) -> Mapping[str, int | str]:
    """What the driver says of a device. Raises NoDriver where there is none."""
    return device_facts(ordinal)


def driver_version(pci: str) -> str:
    """The version of the driver of the device at a place on the bus, e.g. "580.82".

    Empty on a machine without NVML, as in many containers.
    """
    device = ManagedDevice(pci)
    try:
        return device.driver()
    finally:
        device.close()
