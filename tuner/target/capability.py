"""Whether a machine can measure for a target.

It is the very machine that the target names, or has a GPU that is at least what was
declared. A declared target ("cuda:sm_90") describes a class of devices. Machine code of
one architecture runs on that architecture alone. So a newer GPU does not serve an older
one's target, although it could run code of its own.
"""

from __future__ import annotations

from tuner.target.target import Target

AT_LEAST = (
    "multiprocessors",
    "max_threads_per_block",
    "max_dynamic_shared_memory_per_block",
    "registers_per_block",
)


def serves(machine: Target, target: Target) -> bool:
    """Whether kernels for `target` can be measured on `machine`, a target detected there."""
    if machine.key == target.key:
        return True
    if machine.kind != "cuda" or target.kind != "cuda" or not is_declared(target):
        return False
    detected, declared = machine.fingerprint, target.fingerprint
    return detected.get("arch") == declared.get("arch") and all(
        int(detected.get(name, 0)) >= int(declared[name]) for name in AT_LEAST if name in declared
    )


def is_declared(target: Target) -> bool:
    """Whether the target is a class of GPUs and not one that was seen."""
    return target.kind == "cuda" and "device" not in target.fingerprint


def called(target: Target) -> str:
    """What `--target` takes for the target: `cuda:sm_90`.

    A CPU, which has no such text, is called by its name.
    """
    return f"cuda:{target.fingerprint['arch']}" if target.kind == "cuda" else target.name
