"""Declared CPUs: the table of microarchitectures, and a user's own, as targets.

A declared CPU need not be present. All that spaces, features, the estimate of cycles and
the compiler know of it stands in its target, so that nobody else reads the table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.target.architectures.table import ARCHITECTURES
from tuner.target.target import Target

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
FEATURE = re.compile(r"[a-z0-9][a-z0-9.-]{0,40}\Z")
BASED_ON = "based_on"
SCHEMA = 1
GREATEST = 1 << 40  # of a number: a size in bytes, or a count
MAY_BE_ZERO = frozenset({"l3_bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Microarchitecture:
    """A CPU that kernels may be compiled for, as a table's entry describes it."""

    describes: str  # for people
    architecture: str  # as the Linux kernel names it: a row of the table of architectures
    mcpu: str  # LLVM's name of the core
    features: tuple[str, ...]  # that generated code may use, LLVM's spelling, sorted
    every_core: bool = False  # stands for every core that has the features
    vector_bytes: int
    vector_registers: int
    cores: int
    l1d_bytes: int  # of one core
    l2_bytes: int  # of one core
    l3_bytes: int  # shared; 0 where there is none
    line_bytes: int
    page_bytes: int
    load_ports: int  # vectors a core loads in a cycle
    line_fill_buffers: int
    fma_units: int  # vectors of up to 32 bytes multiplied and added in a cycle
    wide_fma_units: int  # of wider ones
    non_temporal_stores: bool
    prefetch: bool


@cache
def shipped() -> Mapping[str, Microarchitecture]:
    """The table of this package, by name."""
    text = (files("tuner.target") / "microarchitectures.toml").read_text()
    return _read(text, "microarchitectures.toml", {})


def declared_cpus(file: Path | None = None) -> Mapping[str, Microarchitecture]:
    """All microarchitectures by name: this package's, and those of a user's file.

    Raises UsageError for a file that cannot be read, with the entry and the field.
    """
    if file is None:
        return shipped()
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the microarchitectures of {file}: {error}") from error
    return {**shipped(), **_read(text, str(file), shipped())}


def cpu_target(
    name: str, cpu: Microarchitecture, key: Callable[[Mapping[str, str | int]], str]
) -> Target:
    """The declared target of a microarchitecture. `key` hashes its fingerprint."""
    architecture = ARCHITECTURES[cpu.architecture]
    length = architecture.length_feature(cpu.vector_bytes)
    isa = cpu.features if length is None else tuple(sorted((*cpu.features, length)))
    fingerprint: dict[str, str | int] = {
        "schema": SCHEMA,
        "kind": "cpu",
        "declared": name,
        "architecture": cpu.architecture,
        "mcpu": cpu.mcpu,
        "isa": ",".join(isa),
        **{name: int(getattr(cpu, name)) for name in _NUMBERS},
    }
    return Target(
        key=key(fingerprint),
        kind="cpu",
        name=f"cpu:{name}",
        tvm={
            "kind": "llvm",
            "mcpu": cpu.mcpu,
            **architecture.cross_options(cpu.features, cpu.vector_bytes),
        },
        isa=isa,
        vector_bytes=cpu.vector_bytes,
        vector_registers=cpu.vector_registers,
        cores=cpu.cores,
        l1d_bytes=cpu.l1d_bytes,
        l2_bytes=cpu.l2_bytes,
        l3_bytes=cpu.l3_bytes,
        fingerprint=fingerprint,
    )


_TYPES: Mapping[str, str] = {field.name: str(field.type) for field in fields(Microarchitecture)}
_NUMBERS = tuple(name for name, kind in _TYPES.items() if kind in ("int", "bool"))
_OPTIONAL = frozenset({"every_core"})


def _read(
    text: str, source: str, before: Mapping[str, Microarchitecture]
) -> Mapping[str, Microarchitecture]:
    """The entries of a table's text; `before` are those it may be based on."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{source} is no TOML: {error}") from error
    entries: dict[str, Microarchitecture] = {}
    for name, entry in document.items():
        if not NAME.match(name) or not isinstance(entry, dict):
            raise UsageError(
                f"{source}: {name!r} is no entry; write [name] with small letters, digits, dots, "
                f"dashes and underscores"
            )
        if name in before:
            raise UsageError(f"{source}: {name} is a name of tuner's own; choose another")
        entries[name] = _entry(f"{source}: {name}", entry, {**before, **entries})
    return entries


def _entry(
    where: str, entry: Mapping[str, Any], before: Mapping[str, Microarchitecture]
) -> Microarchitecture:
    values = dict(entry)
    base = values.pop(BASED_ON, None)
    if base is not None and base not in before:
        raise UsageError(f"{where}: {BASED_ON} names {base!r}, which no entry before it is")
    if base is not None:
        values = {name: getattr(before[base], name) for name in _TYPES} | values
    missing = [name for name in _TYPES if name not in values and name not in _OPTIONAL]
    unknown = [name for name in values if name not in _TYPES]
    if missing or unknown:
        raise UsageError(
            f"{where}: "
            + (f"{missing[0]} is missing" if missing else f"{unknown[0]!r} is no field")
            + f"; the fields are {', '.join(_TYPES)}, and {BASED_ON}"
        )
    made = Microarchitecture(**{name: _value(where, name, value) for name, value in values.items()})
    architecture = ARCHITECTURES[made.architecture]
    scalable = architecture.scalable
    if (
        scalable is not None
        and architecture.length_feature(made.vector_bytes)
        and scalable.feature not in made.features
    ):
        raise UsageError(
            f"{where}: vectors of {made.vector_bytes} bytes need {scalable.feature} among features"
        )
    return made


def _value(where: str, name: str, value: Any) -> Any:
    """A field's value, checked. Raises UsageError."""
    kind = _TYPES[name]
    if name == "features":
        if not isinstance(value, (list, tuple)) or not all(
            isinstance(feature, str) and FEATURE.match(feature) for feature in value
        ):
            raise UsageError(f"{where}: features must be a list of LLVM's names of them")
        return tuple(sorted(set(value)))
    if kind == "str":
        if not isinstance(value, str) or not 0 < len(value) <= 200:
            raise UsageError(f"{where}: {name} must be a text of 1 to 200 characters")
        if name == "architecture" and value not in ARCHITECTURES:
            raise UsageError(
                f"{where}: architecture {value!r} is unknown; known are {', '.join(ARCHITECTURES)}"
            )
        return value
    if kind == "bool":
        if not isinstance(value, bool):
            raise UsageError(f"{where}: {name} must be true or false")
        return value
    return _number(where, name, value)


def _number(where: str, name: str, value: Any) -> int:
    least = 0 if name in MAY_BE_ZERO else 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= GREATEST:
        raise UsageError(
            f"{where}: {name} is {value!r}; give a whole number from {least} to {GREATEST}"
        )
    if name in ("vector_bytes", "line_bytes", "page_bytes") and value & (value - 1):
        raise UsageError(f"{where}: {name} is {value}; give a power of two")
    if name == "vector_bytes" and not 16 <= value <= 64:
        raise UsageError(f"{where}: vector_bytes is {value}; give 16, 32 or 64")
    return value
