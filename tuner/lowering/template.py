"""Spaces that users write: a function with knobs that schedules te tensors or a PrimFunc.

A template is a Python function, known by its reference `module:qualname`. It never
enters a database. A process that is to build its configs imports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule, ScheduleError

from tuner.errors import IllegalSchedule, UsageError
from tuner.lowering.compiler import compile_module
from tuner.lowering.importers.lift import lift, te_function
from tuner.lowering.module import module
from tuner.lowering.schedule import StoredSchedule
from tuner.spaces.core.space import Config
from tuner.spaces.core.template import Knobs
from tuner.spaces.default_schedule import default_program
from tuner.target.target import Target
from tuner.workload.expression import Expression
from tuner.workload.spec import workload_from_expression
from tuner.workload.workload import Workload

Template = Callable[[Schedule, Knobs], None]


@dataclass(frozen=True, kw_only=True)
class CompiledTemplate:
    """Object code of a config, with the schedule that gave it."""

    symbol: str  # the TVM entry is `__tvm_ffi_<symbol>`
    object_code: bytes  # relocatable ELF object for the target
    schedule: StoredSchedule  # replays without the template


class TemplateSpace:
    """The space that a template spans over one program.

    `workload` is the program lifted to an expression; every config is checked against
    its float64 reference. Raises UsageError for a program that cannot be lifted, a
    template without knobs, and a template whose first call TVM refuses.
    """

    def __init__(
        self,
        program: Sequence[te.Tensor] | tirx.PrimFunc,
        template: Template,
        *,
        constants: Iterable[str] = (),
        numerics: str = "strict",
    ) -> None:
        self.template, self.name = template, getattr(template, "__name__", type(template).__name__)
        function = program if isinstance(program, tirx.PrimFunc) else te_function(program)
        # Stored as text, because scheduling changes the function.
        self._function = str(tvm.ir.save_json(function))
        expression = lift(function, self.name)
        _check_parameters(function, expression)
        self.workload: Workload = workload_from_expression(expression, constants, numerics)
        knobs = Knobs()
        try:
            template(self._schedule("kernel"), knobs)
        except ScheduleError as error:
            raise UsageError(
                f"template {self.name!r} has no schedule for the first values of its knobs: {error}"
            ) from error
        self.space = knobs.space(self.name)

    def schedule(self, config: Config, symbol: str = "kernel") -> Schedule:
        """The program with a config applied.

        Raises IllegalSchedule where TVM refuses, UsageError for a config of another
        space.
        """
        full = self.space.config(self.space.point(config))
        scheduled, knobs = self._schedule(symbol), Knobs(full)
        try:
            self.template(scheduled, knobs)
        except ScheduleError as error:
            raise IllegalSchedule(f"template {self.name!r}: {error}") from error
        if knobs.unused():
            raise UsageError(
                f"template {self.name!r} left out {sorted(knobs.unused())}; it defines the same "
                f"knobs at every call"
            )
        return scheduled

    def compile(self, config: Config, target: Target, symbol: str) -> CompiledTemplate:
        """Object code of a config, or of the workload's default schedule for an empty config.

        Raises IllegalSchedule and BuildError as `compile_kernel` does.
        """
        start = tvm.ir.save_json(
            self._module(symbol) if config else module(default_program(self.workload), symbol)
        )
        scheduled = self.schedule(config, symbol) if config else Schedule(tvm.ir.load_json(start))
        stored = StoredSchedule(
            module=start,
            trace=json.dumps(scheduled.trace.as_json(), default=int),
            text=str(scheduled.trace),
            versions={"apache-tvm": tvm.__version__, "apache-tvm-ffi": tvm_ffi.__version__},
        )
        return CompiledTemplate(
            symbol=symbol, object_code=compile_module(scheduled.mod, target), schedule=stored
        )

    @property
    def reference(self) -> str:
        """`module:qualname` of the template.

        Raises UsageError for a function that another process cannot import.
        """
        origin, name = self.template.__module__, self.template.__qualname__
        if origin == "__main__" or "<" in name or resolve(f"{origin}:{name}") is not self.template:
            raise UsageError(
                f"template {origin}:{name} cannot be imported; define it at the top level of a "
                f"module that can"
            )
        return f"{origin}:{name}"

    def _module(self, symbol: str) -> tvm.IRModule:
        attributes = {"global_symbol": symbol, "tirx.noalias": True, "s_tir": True}
        return tvm.IRModule({symbol: tvm.ir.load_json(self._function).with_attr(attributes)})

    def _schedule(self, symbol: str) -> Schedule:
        schedule = Schedule(self._module(symbol), error_render_level="detail")
        schedule.work_on(symbol)
        return schedule

    def __reduce__(self) -> tuple[Callable[..., TemplateSpace], tuple[Any, ...]]:
        return restored, (
            self._function,
            self.reference,
            self.workload.constants,
            self.workload.numerics,
        )


def restored(
    function: str, reference: str, constants: tuple[str, ...], numerics: str
) -> TemplateSpace:
    """A template's space in another process.

    `function` is the program as TVM JSON, `reference` the template's `module:qualname`.
    """
    return TemplateSpace(
        tvm.ir.load_json(function), resolve(reference), constants=constants, numerics=numerics
    )


def resolve(reference: str) -> Template:
    """The function at `module:qualname`. Raises UsageError where there is none."""
    origin, _, name = reference.partition(":")
    try:
        value: Any = import_module(origin)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"template {reference!r} cannot be imported: {error}") from None
    if not callable(value):
        raise UsageError(f"template {reference!r} is a {type(value).__name__}, not a function")
    template: Template = value
    return template


def _check_parameters(function: tirx.PrimFunc, expression: Expression) -> None:
    """Refuse a function whose parameters are not its inputs, then its outputs."""
    shapes = [tuple(int(extent) for extent in param.shape) for param in function.params]
    tensors = [*expression.inputs, *(expression.tensor(name) for name in expression.outputs)]
    last = [param.name for param in function.params][len(expression.inputs) :]
    if (
        len(tensors) != len(shapes)
        or [tensor.shape for tensor in tensors] != shapes
        or len(last) != len(expression.outputs)
    ):
        raise UsageError(
            f"the function's parameters are not its inputs followed by its outputs, "
            f"{', '.join(expression.outputs)}"
        )
