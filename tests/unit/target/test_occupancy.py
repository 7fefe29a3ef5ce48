"""How many warps fit a multiprocessor: as NVIDIA's occupancy calculator has it."""

from __future__ import annotations

import pytest

from tuner.target.detect import parse_target
from tuner.target.occupancy import resident_warps


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared_bytes", "warps"),
    [
        ("sm_80", 256, 32, 0, 64),  # full
        ("sm_80", 256, 128, 0, 16),  # two blocks: registers
        ("sm_80", 256, 129, 0, 8),  # registers are given by eights: 136 of each thread
        ("sm_80", 128, 32, 48 << 10, 12),  # three blocks of 49 KiB in 164
        ("sm_90", 128, 32, 48 << 10, 16),  # four of them in 228
        ("sm_90", 32, 16, 0, 32),  # no more than 32 blocks
        ("sm_90", 96, 32, 0, 63),  # whole blocks
        ("sm_90", 1024, 255, 227 << 10, 32),  # at least a block
    ],
)
def test_the_scarcest_decides(
    arch: str, threads: int, registers: int, shared_bytes: int, warps: int
) -> None:
    target = parse_target(f"cuda:{arch}")
    assert (
        resident_warps(target, threads=threads, registers=registers, shared_bytes=shared_bytes)
        == warps
    )
