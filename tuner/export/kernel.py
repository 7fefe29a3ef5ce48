"""What export needs of one kernel, as plain data: code, signature, and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypedDict

import numpy as np

from tuner.runtime.portfolio import Portfolio
from tuner.runtime.prepack import Prepack
from tuner.target.target import Target
from tuner.workload.arrays import numpy_dtype
from tuner.workload.bounded import BoundedExtents
from tuner.workload.dtypes import DType
from tuner.workload.expression import Expression, Fact, Tensor
from tuner.workload.workload import Numerics, Workload

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a kernel: a dense row-major array."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: Literal["in", "out"]
    # The elements, row-major, of an input that may have no other value: a call compares it.
    fixed: tuple[int | float | bool, ...] | None = None
    format: str = ""  # of its numbers, such as float8_e4m3fn, where the dtype only holds them

    # Of an output: its extents that are computed, by the name of the argument that has them.
    bounded: BoundedExtents | None = None

    # The elements that the examples give an input; None: their formula's.
    example: tuple[int | float | bool, ...] | None = None

    fact: Fact | None = None  # declared of an input; each call checks it

    @property
    def stated(self) -> Array | None:
        """The value that the examples give an input; None where a formula makes it."""
        elements = self.example if self.fixed is None else self.fixed
        if elements is None:
            return None
        return np.array(elements, numpy_dtype(self.dtype)).reshape(self.shape)

    @property
    def tensor(self) -> Tensor:
        """The argument without its role."""
        return Tensor(name=self.name, shape=self.shape, dtype=self.dtype, fact=self.fact)


def arguments_of(expression: Expression) -> tuple[Argument, ...]:
    """The arguments of an expression's kernel in call order: inputs, then outputs."""
    inputs = (
        Argument(
            name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, role="in", fact=tensor.fact
        )
        for tensor in expression.inputs
    )
    outputs = (expression.tensor(name) for name in expression.outputs)
    return (
        *inputs,
        *(
            Argument(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, role="out")
            for tensor in outputs
        ),
    )


@dataclass(frozen=True, kw_only=True)
class TargetName:
    """A target as manifests name it."""

    key: str  # SHA-256 of the machine's fingerprint
    kind: str  # "cpu" or "cuda"
    name: str  # for people

    @classmethod
    def of(cls, target: Target) -> TargetName:
        return cls(key=target.key, kind=target.kind, name=target.name)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A kernel compiled for a lesser CPU, verified and timed as the kernel itself is."""

    name: str  # of a level of x86-64, e.g. "x86-64-v3"
    isa: tuple[str, ...]
    # The kernel's own schedule, or the default one where that is faster, or the only one
    # that gives right answers.
    schedule: Literal["tuned", "default"]
    object_code: bytes
    tvm_symbol: str
    prepack: Prepack | None  # packs as the kernel's own does
    median_s: float
    ci95_s: tuple[float, float]
    max_rel_error: float


@dataclass(frozen=True, kw_only=True)
class ExportKernel:
    """A compiled kernel, or a portfolio of several, with everything a manifest says of it."""

    workload_key: str
    arguments: tuple[Argument, ...]  # in call order: inputs, then outputs
    target: TargetName
    isa: tuple[str, ...]  # features the code may use, LLVM's spelling
    threads: int  # tuned for
    object_code: bytes  # relocatable object, the one that was measured
    tvm_symbol: str  # its packed entry, `__tvm_ffi_<global symbol>`
    prepack: Prepack | None = None  # the function that packs its constants, in the same object
    # Kernels for fixed numbers of rows. The function then has the arguments of the
    # greatest and no code of its own.
    portfolio: Portfolio[ExportKernel] | None = None
    variants: tuple[Variant, ...] = ()  # for CPUs that lack some of `isa`, the richest first
    # Positions of inputs whose memory the output may have: tuner.spaces.program.in_place.
    # Within a model only; users' buffers must not overlap.
    overwritable: tuple[int, ...] = ()
    measured: bool = True  # whether the target ran it; if not, times and errors are 0
    median_s: float  # seconds of one call
    ci95_s: tuple[float, float]
    verified: bool
    max_rel_error: float
    # What it computes: a catalogue operator with its parameters, a text in the notation
    # with its shapes, or an expression.
    op: str | None = None
    params: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    notation: str | None = None
    shapes: Mapping[str, int] = field(default_factory=dict)
    expression: Expression | None = None
    constants: tuple[str, ...] = ()  # inputs declared constant; part of the workload's key
    numerics: Numerics = "strict"
    # job, trial, trace, versions; JSON values
    provenance: Mapping[str, Any] = field(default_factory=dict)
    symbol: str | None = None  # the C function; None: named by tuner.export.naming
    # Right outputs for `tuner.export.examples.example_inputs(kernel)`, in float64; the
    # examples check a sample of them.
    expected: tuple[Array, ...] | None = None
    # Largest |got - expected| / max(1, |expected|) the examples accept; None: by each
    # output's dtype.
    tolerance: float | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """CPU features without which no variant of it runs."""
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
        if self.prepack is None:
            return ()
        return tuple(self.inputs[place] for place in self.prepack.constants)

    @property
    def packed(self) -> tuple[Argument, ...]:
        """The buffers that the pack function writes, as one dimension: their layout is private."""
        tensors = () if self.prepack is None else self.prepack.packed
        return tuple(
            Argument(name=tensor.name, dtype=tensor.dtype, shape=(prod(tensor.shape),), role="in")
            for tensor in tensors
        )

    @property
    def called_with(self) -> tuple[Argument, ...]:
        """The arguments of the C function: packed buffers stand for their constants."""
        if self.prepack is None:
            return self.arguments
        return (*self.prepack.kernel_inputs(self.inputs, self.packed), *self.outputs)

    @property
    def held(self) -> tuple[Argument, ...]:
        """All buffers of a program that calls it: inputs, outputs, packed buffers."""
        return (*self.arguments, *self.packed)


class Computation(TypedDict):
    """The fields of an `ExportKernel` that its workload and target decide."""

    workload_key: str
    op: str | None
    params: Mapping[str, int | float | str | bool]
    notation: str | None
    shapes: Mapping[str, int]
    expression: Expression
    constants: tuple[str, ...]
    numerics: Numerics
    arguments: tuple[Argument, ...]
    target: TargetName
    isa: tuple[str, ...]


def computation_of(workload: Workload, target: Target) -> Computation:
    return Computation(
        workload_key=workload.key,
        op=workload.op,
        params=workload.params,
        notation=workload.notation,
        shapes=workload.shapes,
        expression=workload.expression,
        constants=workload.constants,
        numerics=workload.numerics,
        arguments=arguments_of(workload.expression),
        target=TargetName.of(target),
        isa=target.isa,
    )
