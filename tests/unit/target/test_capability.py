"""Which machine serves which target: its own, and declared GPUs that it is at least."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.targets import SM_90, ZEN5
from tuner.target.capability import called, is_declared, serves
from tuner.target.detect import target_key
from tuner.target.target import Target

DECLARED = SM_90


def device(**changes: str | int) -> Target:
    """What detection makes of a GPU: the declared target's facts and the device's own."""
    fingerprint = {**DECLARED.fingerprint, "device": "NVIDIA H100 80GB HBM3", **changes}
    return replace(DECLARED, key=target_key(fingerprint), name="seen", fingerprint=fingerprint)


def test_a_machine_serves_its_own_target() -> None:
    assert serves(ZEN5, ZEN5)
    assert serves(device(), device())


@pytest.mark.parametrize(
    ("machine", "served"),
    [
        (device(), True),
        (device(multiprocessors=144), True),
        (device(multiprocessors=64), False),
        (device(max_dynamic_shared_memory_per_block=99 << 10), False),
        (device(arch="sm_80"), False),
        (ZEN5, False),
    ],
)
def test_a_gpu_serves_what_was_declared_if_it_is_at_least_that(
    machine: Target, served: bool
) -> None:
    assert serves(machine, DECLARED) is served


def test_a_gpu_serves_no_other_gpu_that_was_seen_and_a_class_serves_nobody() -> None:
    assert not serves(device(), device(multiprocessors=144))
    assert not serves(DECLARED, device())
    assert not serves(device(), ZEN5)


def test_targets_are_called_as_the_command_takes_them() -> None:
    assert called(DECLARED) == called(device()) == "cuda:sm_90"
    assert called(ZEN5) == ZEN5.name
    assert is_declared(DECLARED) and not is_declared(device()) and not is_declared(ZEN5)
