"""What export needs to know of one kernel, as plain data: its code, its signature, and
what is known about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np

from tuner.runtime.portfolio import Portfolio
from tuner.runtime.prepack import Prepack
from tuner.workload.expression import DType, Expression, Tensor
from tuner.workload.workload import Numerics


@dataclass(frozen=True, kw_only=True)
class Argument:
    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: Literal["in", "out"]

    @property
    def tensor(self) -> Tensor:
        return Tensor(name=self.name, shape=self.shape, dtype=self.dtype)


def arguments_of(expression: Expression) -> tuple[Argument, ...]:
    """In call order: inputs, then outputs."""
    inputs = (
        Argument(name=one.name, dtype=one.dtype, shape=one.shape, role="in")
        for one in expression.inputs
    )
    outputs = (expression.tensor(name) for name in expression.outputs)
    return (
        *inputs,
        *(Argument(name=one.name, dtype=one.dtype, shape=one.shape, role="out") for one in outputs),
    )


@dataclass(frozen=True, kw_only=True)
class TargetName:
    key: str  # SHA-256 of the machine's fingerprint
    kind: str  # "cpu"
    name: str  # for people


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The same kernel compiled for another kind of CPU, verified and timed like the one
    it stands behind."""

    name: str  # of a level of x86-64, e.g. "x86-64-v3"
    isa: tuple[str, ...]
    schedule: Literal[
        "tuned", "default"
    ]  # the kernel's own, or the default one where that is faster or the only right one
    object_code: bytes
    tvm_symbol: str
    prepack: Prepack | None  # packs as the kernel's own does
    median_s: float
    ci95_s: tuple[float, float]
    max_rel_error: float


@dataclass(frozen=True, kw_only=True)
class ExportKernel:
    workload_key: str
    arguments: tuple[Argument, ...]  # in call order: inputs, then outputs
    target: TargetName
    isa: tuple[str, ...]  # features the code may use, LLVM's spelling
    threads: int  # tuned for
    object_code: bytes  # relocatable object, the one that was measured
    tvm_symbol: str  # its packed entry, `__tvm_ffi_<global symbol>`
    prepack: Prepack | None = None  # the function that packs its constants, in the same object
    # Kernels for fixed numbers of rows behind this function, which has the arguments of
    # the greatest and no code of its own.
    portfolio: Portfolio[ExportKernel] | None = None
    variants: tuple[Variant, ...] = ()  # for CPUs that lack some of `isa`, the richest first
    median_s: float  # seconds of one call
    ci95_s: tuple[float, float]
    verified: bool
    max_rel_error: float
    op: str | None = None  # catalogue operator with its params, or
    params: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    notation: str | None = None  # the notation's text with its shapes
    shapes: Mapping[str, int] = field(default_factory=dict)
    expression: Expression | None = (
        None  # of a workload that came as neither, so that whoever verifies can rebuild it
    )
    constants: tuple[str, ...] = ()  # inputs known ahead of time; part of the workload's key
    numerics: Numerics = "strict"
    provenance: Mapping[str, Any] = field(
        default_factory=dict
    )  # job, trial, trace, versions; JSON values
    symbol: str | None = None  # the C function; None: named by tuner.export.naming
    # Right outputs for `tuner.export.examples.example_inputs(kernel)`, in float64; the
    # examples check a sample of them.
    expected: tuple[np.ndarray[Any, np.dtype[Any]], ...] | None = None
    # Largest |got - expected| / max(1, |expected|) the examples accept; None: by each
    # output's dtype.
    tolerance: float | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """Features without which it does not answer."""
        if self.portfolio is not None:
            return tuple(
                sorted({feature for kernel in self.portfolio.kernels for feature in kernel.needed})
            )
        return self.variants[-1].isa if self.variants else self.isa

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.role == "in")

    @property
    def outputs(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.role == "out")

    @property
    def constants_packed(self) -> tuple[Argument, ...]:
        """The inputs that the pack function takes."""
        return (
            ()
            if self.prepack is None
            else tuple(self.inputs[place] for place in self.prepack.constants)
        )

    @property
    def packed(self) -> tuple[Argument, ...]:
        """What the pack function writes, flat: its order is the kernel's own affair."""
        tensors = () if self.prepack is None else self.prepack.packed
        return tuple(
            Argument(name=one.name, dtype=one.dtype, shape=(prod(one.shape),), role="in")
            for one in tensors
        )

    @property
    def called_with(self) -> tuple[Argument, ...]:
        """What the C function takes: the arguments, with packed buffers in their
        constants' place."""
        if self.prepack is None:
            return self.arguments
        return (*self.prepack.kernel_inputs(self.inputs, self.packed), *self.outputs)

    @property
    def held(self) -> tuple[Argument, ...]:
        """Everything that a program which calls it has in memory: inputs, outputs,
        packed buffers."""
        return (*self.arguments, *self.packed)
