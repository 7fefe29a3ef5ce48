"""A request's target: key, name or kind, and only left out where there is no doubt."""

from __future__ import annotations

from typing import Literal

import pytest

from tuner.api.targets import UnknownTarget, choose
from tuner.target.target import Target


def target(key: str, kind: Literal["cpu", "cuda"], name: str) -> Target:
    return Target(
        key=key,
        kind=kind,
        name=name,
        tvm={},
        isa=(),
        vector_bytes=64,
        vector_registers=32,
        cores=2,
        l1d_bytes=1,
        l2_bytes=1,
        l3_bytes=1,
    )


A, B, G = (
    target("a" * 64, "cpu", "zen"),
    target("b" * 64, "cpu", "lake"),
    target("c" * 64, "cuda", "hopper"),
)


@pytest.mark.parametrize(
    ("name", "default", "chosen"),
    [
        ("a" * 64, None, A),
        ("lake", None, B),
        ("cuda", None, G),
        (None, "b" * 64, B),
        ("cpu", "b" * 64, B),
        ("zen", "b" * 64, A),
        ("cuda", "b" * 64, G),
    ],
)
def test_found(name: str | None, default: str | None, chosen: Target) -> None:
    assert choose(name, [A, B, G], default) is chosen


@pytest.mark.parametrize(
    ("name", "targets"),
    [("cpu", [A, B]), (None, [A, B]), ("nothing", [A]), (None, []), ("cuda", [A])],
)
def test_doubt_is_refused(name: str | None, targets: list[Target]) -> None:
    with pytest.raises(UnknownTarget):
        choose(name, targets, None)


@pytest.mark.parametrize("targets", [[], [A, B, G]])
def test_a_declared_gpu_needs_no_machine_that_has_it(targets: list[Target]) -> None:
    gpu = choose("cuda:sm_90", targets, "a" * 64)
    assert (gpu.kind, gpu.tvm["arch"]) == ("cuda", "sm_90")
    with pytest.raises(UnknownTarget):
        choose("cuda:sm_00", targets, None)


def test_the_only_one_needs_no_name() -> None:
    assert choose(None, [G], None) is G
