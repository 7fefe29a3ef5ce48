"""Targets and limits as JSON documents and back.

The database, the wire and manifests hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tuner.errors import TunerError
from tuner.target.arithmetic import ArithmeticUnit
from tuner.target.target import ArithmeticRate, Bandwidth, Limits, Target

Document = Mapping[str, Any]


class DocumentError(TunerError):
    """A document that is no target or no limits."""

    code = "document"


def limits_to_document(limits: Limits) -> dict[str, Any]:
    """What a GPU alone has is left out where there is nothing of it."""
    document = {
        **asdict(limits),
        "bandwidth": [asdict(entry) for entry in limits.bandwidth],
        "rates": [asdict(rate) for rate in limits.rates],
    }
    return {name: value for name, value in document.items() if value or name not in _OF_A_GPU}


def limits_from_document(document: Document) -> Limits:
    """The inverse of `limits_to_document`.

    Raises DocumentError for a document that misses a field, or has a rate that is not
    positive.
    """
    try:
        limits = Limits(
            fma_flops=float(document["fma_flops"]),
            fma_flops_best=float(document["fma_flops_best"]),
            bandwidth=tuple(_bandwidth(entry) for entry in document["bandwidth"]),
            rates=tuple(_rate(entry) for entry in document.get("rates", ())),
            shared_bytes_per_s=_number(document.get("shared_bytes_per_s")),
            launch_s=_number(document.get("launch_s")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DocumentError(f"malformed limits: {error!r}") from error
    rates = [limits.fma_flops, limits.fma_flops_best]
    rates += [rate for entry in limits.bandwidth for rate in (entry.read, entry.write, entry.copy)]
    rates += [value for rate in limits.rates for value in (rate.flops, rate.flops_best)]
    rates += [value for value in (limits.shared_bytes_per_s, limits.launch_s) if value is not None]
    if not limits.bandwidth or not all(rate > 0 for rate in rates):
        raise DocumentError(
            "malformed limits: every rate must be positive, and bandwidth not empty"
        )
    return limits


def target_to_document(target: Target) -> dict[str, Any]:
    limits = None if target.limits is None else limits_to_document(target.limits)
    fields = {name: getattr(target, name) for name in _PLAIN}
    tables = {
        "tvm": dict(target.tvm),
        "isa": list(target.isa),
        "fingerprint": dict(target.fingerprint),
    }
    return {**fields, **tables, "limits": limits}


def target_from_document(document: Document) -> Target:
    """The inverse of `target_to_document`.

    Raises DocumentError for a document that misses a field or has one too many.
    """
    try:
        limits = None if document["limits"] is None else limits_from_document(document["limits"])
        return Target(
            **{
                **document,
                "tvm": dict(document["tvm"]),
                "isa": tuple(document["isa"]),
                "limits": limits,
            }
        )
    except (KeyError, TypeError) as error:
        raise DocumentError(f"malformed target: {error!r}") from error


_OF_A_GPU = ("rates", "shared_bytes_per_s", "launch_s")
_PLAIN = (
    "key",
    "kind",
    "name",
    "vector_bytes",
    "vector_registers",
    "cores",
    "l1d_bytes",
    "l2_bytes",
    "l3_bytes",
)


def _bandwidth(entry: Document) -> Bandwidth:
    return Bandwidth(
        working_set_bytes=int(entry["working_set_bytes"]),
        read=float(entry["read"]),
        write=float(entry["write"]),
        copy=float(entry["copy"]),
    )


def _rate(entry: Document) -> ArithmeticRate:
    return ArithmeticRate(
        unit=ArithmeticUnit(entry["unit"]),
        dtype=str(entry["dtype"]),
        flops=float(entry["flops"]),
        flops_best=float(entry["flops_best"]),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
