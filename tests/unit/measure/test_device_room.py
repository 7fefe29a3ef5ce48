"""What a device has no room for is refused with the tensor, the limit and a way out."""

from __future__ import annotations

import pytest

from tuner.errors import UsageError
from tuner.measure.assignment import Device, Lane
from tuner.measure.device.room import check_room
from tuner.workload.spec import parse_spec

PRODUCT = "matmul:M=512,N=512,K=512"  # inputs of 1 MiB each, in five kinds


def lane(memory_bytes: int) -> Lane:
    device = Device(command=("ssh", "pi", "agent"), memory_bytes=memory_bytes)
    return Lane(name="device:pi", cores=(0,), device=device)


@pytest.mark.parametrize(
    ("spec", "memory_bytes", "said"),
    [
        ("transpose:M=8192,N=8193", 64 << 30, "268,468,224 bytes, .* of 268,435,456 at most; "),
        ("matmul:M=64,N=70000,K=1024", 64 << 30, "B has 286,720,000 bytes, .* choose smaller"),
        (PRODUCT, (40 << 20) - 4, "5 kinds have 10,485,760 bytes, and device:pi keeps 10,485,759"),
        (PRODUCT, 40 << 20, None),
        (PRODUCT, 0, None),
    ],
)
def test_what_is_too_large_for_a_device_is_refused(
    spec: str, memory_bytes: int, said: str | None
) -> None:
    check_room(parse_spec(spec), [Lane(name="cpu:1", cores=(1,))])
    lanes = [lane(64 << 30), lane(memory_bytes)]
    if said is None:
        return check_room(parse_spec(spec), lanes)
    with pytest.raises(UsageError, match=said):
        check_room(parse_spec(spec), lanes)
