"""Whether a machine can measure for a target.

It is the very machine that the target names, or belongs to the class of machines that a
declared target ("cuda:sm_90", "cpu:neoverse-n1") describes. A GPU then has the
architecture and is at least what was declared. A newer one does not serve an older one's
target: machine code of one architecture runs on that architecture alone. A CPU is of the
declared kind of core, or has the features of a class that names no core ("cpu:x86-64-v3").
"""

from __future__ import annotations

from tuner.errors import UsageError
from tuner.target.architectures.table import architecture_of, detectable_features
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
    if machine.kind != target.kind or is_declared(machine) or not is_declared(target):
        return False
    return _is_core(machine, target) if target.kind == "cpu" else _is_at_least(machine, target)


def _is_at_least(machine: Target, target: Target) -> bool:
    detected, declared = machine.fingerprint, target.fingerprint
    return detected.get("arch") == declared.get("arch") and all(
        int(detected.get(name, 0)) >= int(declared[name]) for name in AT_LEAST if name in declared
    )


def _is_core(machine: Target, target: Target) -> bool:
    """Whether the machine's cores are of the declared kind, with its features."""
    detected, declared = machine.fingerprint, target.fingerprint
    if detected.get("architecture") != declared["architecture"]:
        return False
    missing = set(target.isa) & detectable_features() - set(machine.isa)
    of_kind = declared.get("every_core") or detected.get("mcpu") == declared["mcpu"]
    return bool(of_kind) and not missing


def is_declared(target: Target) -> bool:
    """Whether the target is a class of CPUs or GPUs and not one that was seen."""
    return target.declared


def refuse_unmeasured(target: Target) -> None:
    """Raises UsageError for a target that no machine and no agent measures."""
    if architecture_of(target).freestanding:
        raise UsageError(
            f"kernels of {called(target)} are not measured, because no agent runs inside of an "
            f"engine, and no kernel is promoted unmeasured; take what the estimate ranks first: "
            f"tuner export SPEC --target {called(target)} -o DIR"
        )


def target_flag(target: Target) -> str:
    """What a command is told besides to mean the target, such as ` --target cpu:neoverse-n1`.

    Nothing for a CPU that was seen: that is what commands mean there.
    """
    if target.declared:
        return f" --target {called(target)}"
    return " --target cuda" if target.on_device else ""


def called(target: Target) -> str:
    """What `--target` takes for the target: `cuda:sm_90`, `cpu:neoverse-n1`.

    A CPU that was seen has no such text and is called by its name.
    """
    return f"cuda:{target.fingerprint['arch']}" if target.kind == "cuda" else target.name
