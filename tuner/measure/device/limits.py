"""What a device's core can do at most, measured by its agent.

A device may say anything. Rates beyond what its declared CPU could do at a frequency
that no core has are refused.
"""

from __future__ import annotations

from tuner.measure.assignment import Device
from tuner.measure.device.connection import CandidateEnded, Connection, DeviceError
from tuner.target.limits import LARGEST_SET_BYTES, LimitsError
from tuner.target.target import Bandwidth, Limits, Target

SECONDS = 2.0
FASTEST_HZ = 8e9  # no core of today comes near it


def device_limits(device: Device, target: Target) -> Limits:
    """The limits of one core of a device. Raises LimitsError."""
    try:
        with Connection(device) as connection:
            most_bytes = min(LARGEST_SET_BYTES, connection.facts.memory_bytes // 8)
            values = connection.limits(SECONDS, most_bytes)
    except CandidateEnded as error:
        raise LimitsError(f"{device.text} could not measure its limits: {error.ended}") from error
    except DeviceError as error:
        raise LimitsError(str(error)) from error
    return limits_of(values, target)


def limits_of(values: tuple[float, ...], target: Target) -> Limits:
    """Limits from an agent's numbers. Raises LimitsError for none, and for what cannot be."""
    if len(values) < 6 or len(values) % 4 != 2:
        raise LimitsError(f"the agent for {target.name} does not measure the core's limits")
    rows = [values[start : start + 4] for start in range(2, len(values), 4)]
    declared = {name: int(value) for name, value in target.fingerprint.items() if _is_number(value)}
    flops = 2 * target.vector_bytes / 4 * declared["fma_units"] * FASTEST_HZ
    moved = 2 * target.vector_bytes * declared["load_ports"] * FASTEST_HZ
    rates = [rate for row in rows for rate in row[1:]]
    if not 0 < values[0] <= values[1] <= flops or not all(0 < rate <= moved for rate in rates):
        raise LimitsError(
            f"the device says that its core does what no {target.name} can: {values[1]:.3g} FLOP/s "
            f"of at most {flops:.3g}, {max(rates):.3g} bytes a second of at most {moved:.3g}"
        )
    sizes = [row[0] for row in rows]
    if sizes != sorted(set(sizes)) or not 1 <= sizes[0] <= sizes[-1] <= LARGEST_SET_BYTES:
        raise LimitsError(f"the device says that it measured working sets of {sizes} bytes")
    return Limits(
        fma_flops=values[0],
        fma_flops_best=values[1],
        bandwidth=tuple(
            Bandwidth(working_set_bytes=int(row[0]), read=row[1], write=row[2], copy=row[3])
            for row in rows
        ),
    )


def _is_number(value: str | int) -> bool:
    return isinstance(value, int)
