"""The derivative of an expression as an expression: reverse mode over its stages.

The program takes the inputs of the expression and, for each output, its derivative `dY`:
what a later loss changes by when an element of the output does. It computes the same for
chosen inputs. Stages of the expression that are needed are computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType

from tuner.errors import WorkloadError
from tuner.workload.derivative.access import place
from tuner.workload.derivative.algebra import (
    ZERO,
    is_plain_product,
    over,
    plus,
    real,
    times,
    without_conversions,
)
from tuner.workload.derivative.partials import Guard, partials, varies
from tuner.workload.derivative.shifts import is_arbitrary
from tuner.workload.derivative.sums import Term, term
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Expression,
    Read,
    Reducer,
    Scalar,
    Select,
    Stage,
    Tensor,
    Unary,
    Var,
    children,
    reads,
    substitute,
    walk,
)
from tuner.workload.grammar import suggestion
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS

# Of one right-hand side; no text holds as many.
_MOST_OPERATIONS = 8000
_LONGEST_NAME = 58  # of a kernel, so that its derivative's name is none too long


def derivative(
    expression: Expression, wrt: Sequence[str] | None = None, *, with_outputs: bool = False
) -> Expression:
    """The vector-Jacobian product by the inputs named in `wrt`, without: by all that have one.

    Its inputs are those of the expression that it needs, in their order, then `dY` for
    each output Y that counts, of Y's shape and dtype; its outputs are `dA` of A's shape
    and dtype for each A in `wrt`, in that order. Names that exist get a number. With
    `with_outputs` the outputs that it needs are inputs too, before these, and are not
    computed again.

    Conversions between floats have the derivative 1, those to integers 0, as steps,
    conditions and indices have. Equal greatest or least terms of `max=` and `min=` share
    the derivative. Types are left to who parses the program's text.

    Raises `WorkloadError` (parameter "wrt") for an input that does not exist, that no
    output depends on smoothly, or that is given twice.
    """
    given = frozenset(expression.outputs if with_outputs else ())
    return _Builder(expression, _chosen(expression, wrt), wrt is not None, given).program()


def _chosen(expression: Expression, wrt: Sequence[str] | None) -> tuple[str, ...]:
    """The inputs by which to differentiate."""
    names = [tensor.name for tensor in expression.inputs]
    smooth = [name for name in names if _reaches_output(expression, name)]
    if wrt is None:
        if not smooth:
            raise WorkloadError(
                f"{expression.name} has no derivative: no output depends on an input of "
                f"floating-point numbers by other ways than steps, conditions and indices",
                parameter="wrt",
            )
        return tuple(smooth)
    for number, name in enumerate(wrt):
        if name not in names:
            raise WorkloadError(
                f"{expression.name} has no input {name[:60]!r}{suggestion(name, names)}; its "
                f"inputs are {', '.join(names)}",
                parameter="wrt",
            )
        if name in wrt[:number]:
            raise WorkloadError(f"input {name!r} is given twice; give it once", parameter="wrt")
        if name not in smooth:
            dtype = expression.tensor(name).dtype
            reason = (
                "no output depends on it by other ways than steps, conditions and indices"
                if "float" in dtype
                else f"it holds {dtype}, not floating-point numbers"
            )
            others = f"; inputs with one are {', '.join(smooth)}" if smooth else ""
            raise WorkloadError(
                f"there is no derivative by {name!r}: {reason}{others}", parameter="wrt"
            )
    if not wrt:
        raise WorkloadError(
            f"wrt names no input; those with a derivative are {', '.join(smooth)}", parameter="wrt"
        )
    return tuple(wrt)


def _reaches_output(expression: Expression, name: str) -> bool:
    return "float" in expression.tensor(name).dtype and any(
        output in expression.outputs for output in dependent(expression, (name,))
    )


def dependent(expression: Expression, wrt: Collection[str]) -> set[str]:
    """The tensors of floats that depend smoothly on some inputs, those inputs among them."""
    reached = set(wrt)
    for stage in expression.stages:
        if "float" in stage.dtype and varies(stage.body, reached.__contains__):
            reached.add(stage.name)
    return reached


@dataclass
class _Builder:
    """Makes the program of one expression."""

    expression: Expression
    wrt: tuple[str, ...]
    is_asked: bool  # for all of these; else those without a derivative are left out
    given: frozenset[str]  # outputs that are inputs of the program
    backward: list[Stage] = field(default_factory=list)
    # by tensor, the summands of its derivative
    terms: dict[str, list[Term]] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)  # all of the program
    forward: list[Stage] = field(default_factory=list)  # the expression's stages
    dependent: set[str] = field(default_factory=set)  # tensors that have a derivative

    def program(self) -> Expression:
        self.tensors, self.forward = self.expression.tensors, list(self.expression.stages)
        names = {name: self._fresh(f"d{name}") for name in self.expression.outputs}
        self.dependent = dependent(self._without_arbitrary_stages(), self.wrt)
        weights = {}
        for name in self.expression.outputs:
            tensor = replace(self.expression.tensor(name), name=names[name])
            weights[name] = self.tensors[names[name]] = tensor
            if name in self.dependent:
                indices = tuple(place(d) for d in range(len(tensor.shape)))
                self.terms[name] = [Term(body=Read(tensor.name, indices), free={})]
        for stage in reversed(self.expression.stages):
            if stage.name in self.terms:
                self._pass_on(stage)
        outputs = tuple(self._output(name) for name in self._with_derivative())
        everything = (*self.forward, *self.backward)
        computed = [stage for stage in everything if stage.name not in self.given]
        stages = _needed(computed, outputs)
        used = {read.tensor for stage in stages for read in reads(stage.body)}
        given = (self.expression.tensor(name) for name in self.expression.outputs)
        results = (tensor for tensor in given if tensor.name in self.given)
        inputs = (*self.expression.inputs, *results, *weights.values())
        return Expression(
            name=f"{self.expression.name[:_LONGEST_NAME]}_grad",
            inputs=tuple(tensor for tensor in inputs if tensor.name in used),
            stages=stages,
            outputs=outputs,
        )

    def _with_derivative(self) -> Iterator[str]:
        """The inputs by which to differentiate. Raises WorkloadError for one without effect."""
        for name in self.wrt:
            if name in self.terms:
                yield name
            elif self.is_asked or not self.terms.keys() & set(self.wrt):
                raise WorkloadError(
                    f"the derivative by {name!r} is zero everywhere: no output changes with it",
                    parameter="wrt",
                )

    def _without_arbitrary_stages(self) -> Expression:
        """The expression with greatest and least values as constants that nothing depends on."""
        stages = tuple(
            replace(stage, body=ZERO)
            if stage.reducer in ("max", "min") and is_arbitrary(self.expression, stage.name)
            else stage
            for stage in self.expression.stages
        )
        return replace(self.expression, stages=stages)

    def _fresh(self, name: str) -> str:
        return distinct(name, self.tensors)

    # --- one stage

    def _pass_on(self, stage: Stage) -> None:
        """Adds what a stage's derivative gives to the tensors that it reads."""
        weight = self._weight(stage)
        kept = None
        if stage.reducer is None and (stage.name in self.given or _is_function(stage.body)):
            kept = _element(stage)
        factor, guards = self._by_term(stage)
        derivatives = partials(
            stage.body,
            times(weight, factor),
            self.dependent.__contains__,
            guards=guards,
            result=kept,
        )
        for read, value in derivatives.items():
            if sum(1 for _ in islice(walk(value), _MOST_OPERATIONS + 1)) > _MOST_OPERATIONS:
                raise WorkloadError(
                    f"the derivative of stage {stage.name} by {read.tensor} has more than "
                    f"{_MOST_OPERATIONS} operations; make parts of the stage stages of their own",
                    parameter="wrt",
                )
        for read, value in self._shared(stage, derivatives).items():
            summand = term(read, value, stage, self.tensors)
            if summand is not None:
                self.terms.setdefault(read.tensor, []).append(summand)

    def _weight(self, stage: Stage) -> Scalar:
        """The derivative by an element of a stage, as a scalar of the stage's iterators."""
        value = self._gathered(stage.tensor, [axis.name for axis in stage.axes])
        uses = [read for read in reads(stage.body) if read.tensor in self.dependent]
        if not _is_light(value, stage) and (stage.reducer is not None or len(uses) > 1):
            value = self._element_of(
                self._stage(f"d{stage.name}", stage.tensor, _names(stage.axes), value)
            )
        places = {place(d).name: Var(axis.name) for d, axis in enumerate(stage.axes)}
        return substitute(value, places)

    def _shared(self, stage: Stage, derivatives: Mapping[Read, Scalar]) -> Mapping[Read, Scalar]:
        """The derivatives by reads, with one that several reads have in a stage of its own.

        Only where it would get one anyway, as the derivative by a reduction that is read.
        """
        values = list(derivatives.values())
        reduced = {made.name for made in self.forward if made.reducer is not None}
        for read, value in derivatives.items():
            if (
                stage.reducer is None
                and read.tensor in reduced
                and values.count(value) > 1
                and not _is_light(value, stage)
            ):
                names = _names(stage.axes)
                places: dict[str, Scalar] = {name: place(d) for d, name in enumerate(names)}
                name = f"d{stage.name}_shared"
                made = self._stage(name, stage.tensor, names, substitute(value, places))
                return {
                    other: _element(made) if given == value else given
                    for other, given in derivatives.items()
                }
        return derivatives

    def _by_term(self, stage: Stage) -> tuple[Scalar, tuple[Guard, ...]]:
        """The derivative of a reduction by a term, and the conditions for it not to be 0."""
        match stage.reducer:
            case "max" | "min":
                term = self._exact_term(stage)
                greatest: Scalar = Binary("eq", term, _element(stage))
                ties = self._count(f"{stage.name}_ties", stage, greatest)
                return over(real(1), ties), ((greatest, True),)
            case "prod":
                is_zero = Binary("eq", stage.body, ZERO)
                zeros = self._count(f"{stage.name}_zeros", stage, is_zero)
                others = self._reduced(
                    f"{stage.name}_others", stage, "prod", Select(is_zero, real(1), stage.body)
                )
                alone = Select(Binary("eq", zeros, real(1)), others, ZERO)
                quotient = Select(Binary("eq", zeros, ZERO), over(others, stage.body), ZERO)
                return Select(is_zero, alone, quotient), ()
            case _:
                return real(1), ()

    def _exact_term(self, stage: Stage) -> Scalar:
        """A term of a reduction that can be compared with the result: computed once if it rounds.

        A product computed twice, once fused with a sum, need not give the same number.
        """
        if _is_exact(stage.body):
            return stage.body
        axes = (*stage.axes, *stage.reduce_axes)
        name = self._fresh(f"{stage.name}_terms")
        made = Stage(name=name, axes=axes, body=stage.body, dtype=stage.accumulator)
        self.tensors[name] = made.tensor
        read = _element(made)
        place_of = self.forward.index(stage)
        self.forward[place_of : place_of + 1] = [made, replace(stage, body=read)]
        return read

    def _count(self, name: str, stage: Stage, condition: Scalar) -> Scalar:
        return self._reduced(name, stage, "sum", Select(condition, real(1), ZERO))

    def _reduced(self, name: str, stage: Stage, reducer: Reducer, body: Scalar) -> Scalar:
        """An element of a new stage with the axes of a given one."""
        made = replace(
            stage, name=self._fresh(name), reducer=reducer, body=body, dtype=stage.accumulator
        )
        self.tensors[made.name] = made.tensor
        self.backward.append(made)
        return _element(made)

    # --- the derivative by one tensor

    def _gathered(self, tensor: Tensor, names: Sequence[str]) -> Scalar:
        """The derivative by an element at `place(0)` and so on, its sums stages of their own."""
        plain: Scalar = ZERO
        sums: list[Term] = []
        for summand in self.terms.get(tensor.name, ()):
            if not summand.free:
                plain = plus(plain, summand.body)
            else:
                _join(sums, summand)
        alone = len(sums) == 1 and plain == ZERO
        for number, summand in enumerate(sums, start=1):
            name = f"d{tensor.name}" if alone else f"d{tensor.name}_{number}"
            made = self._stage(name, tensor, names, summand.body, summand.free)
            plain = plus(self._element_of(made), plain)
        return plain

    def _stage(
        self,
        name: str,
        tensor: Tensor,
        names: Sequence[str],
        body: Scalar,
        free: Mapping[str, int] = MappingProxyType({}),
    ) -> Stage:
        """A new stage of a tensor's shape, with axes of these names."""
        axes = tuple(
            Axis(name=axis, extent=extent) for axis, extent in zip(names, tensor.shape, strict=True)
        )
        values: dict[str, Scalar] = {place(d).name: Var(axis) for d, axis in enumerate(names)}
        summed: dict[str, int] = {}
        for iterator, extent in free.items():
            plain = distinct(iterator.strip("@"), (*names, *summed))
            values[iterator], summed[plain] = Var(plain), extent
        computed = _computed(tensor.dtype)
        made = Stage(
            name=self._fresh(name),
            axes=axes,
            reduce_axes=tuple(Axis(name=n, extent=extent) for n, extent in summed.items()),
            reducer="sum" if summed else None,
            body=substitute(body, values),
            dtype=computed,
            accumulator=computed,
        )
        self.tensors[made.name] = made.tensor
        self.backward.append(made)
        return made

    @staticmethod
    def _element_of(stage: Stage) -> Read:
        return Read(stage.name, tuple(place(d) for d in range(len(stage.axes))))

    def _output(self, name: str) -> str:
        """Defines the derivative by an input, and gives its name."""
        tensor = self.expression.tensor(name)
        names = self._index_names(tensor)
        before = len(self.backward)
        value = self._gathered(tensor, names)
        if len(self.backward) > before and value == self._element_of(self.backward[-1]):
            made = self.backward.pop()
        else:
            made = self._stage(f"d{name}", tensor, names, value)
            self.backward.pop()
        self.backward.append(replace(made, dtype=tensor.dtype))
        return made.name

    def _index_names(self, tensor: Tensor) -> list[str]:
        """Names of a tensor's indices: those of iterators that index it alone."""
        names: list[str] = []
        everything = [read for stage in self.expression.stages for read in reads(stage.body)]
        for dimension in range(len(tensor.shape)):
            used = (read.indices[dimension] for read in everything if read.tensor == tensor.name)
            plain = [index.name for index in used if isinstance(index, Var)]
            names.append(distinct(plain[0] if plain else f"i{dimension}", names))
        return names


def _names(axes: Iterable[Axis]) -> list[str]:
    return [axis.name for axis in axes]


def _element(stage: Stage) -> Read:
    """The stage's element at its own iterators."""
    return Read(stage.name, tuple(Var(axis.name) for axis in stage.axes))


def distinct(name: str, names: Collection[str]) -> str:
    """The name, with a number from 2 on where it is one of those given."""
    number, fresh = 1, name
    while fresh in names:
        number += 1
        fresh = f"{name}_{number}"
    return fresh


def _join(sums: list[Term], summand: Term) -> None:
    """Adds a sum to others, within one over equal extents unless either is a plain product.

    Those have kernels of their own.
    """
    extents = list(summand.free.values())
    for number, other in enumerate(sums):
        if list(other.free.values()) == extents and not (
            is_plain_product(other.body) or is_plain_product(summand.body)
        ):
            names = {a: Var(b) for a, b in zip(summand.free, other.free, strict=True)}
            body = plus(other.body, substitute(summand.body, names))
            sums[number] = replace(other, body=body)
            return
    sums.append(summand)


def _computed(dtype: DType) -> DType:
    return "float64" if dtype == "float64" else "float32"


def _is_light(value: Scalar, stage: Stage) -> bool:
    """Whether a derivative may be computed wherever it is used: a read, perhaps of a multiple.

    A multiple would spoil a plain product that a stage sums.
    """
    while not (stage.reducer is not None and is_plain_product(stage.body)):
        match value:
            case Unary(op="neg", arg=arg) | Binary(op="mul" | "div", lhs=arg, rhs=Const()):
                value = arg
            case _:
                break
    return isinstance(without_conversions(value), Read) or isinstance(value, Const)


def _is_function(node: Scalar) -> bool:
    return isinstance(node, Unary) and UNARY_OPERATORS[node.op].is_function


def _is_exact(node: Scalar) -> bool:
    """Whether a scalar is computed without rounding."""
    return not any(
        (isinstance(part, Unary) and UNARY_OPERATORS[part.op].is_function)
        or (isinstance(part, Binary) and BINARY_OPERATORS[part.op].is_rounded)
        or (isinstance(part, Binary) and BINARY_OPERATORS[part.op].is_function)
        for part in _outside_indices(node)
    )


def _outside_indices(node: Scalar) -> Iterator[Scalar]:
    """The parts of a scalar without those of indices."""
    yield node
    for part in () if isinstance(node, Read) else children(node):
        yield from _outside_indices(part)


def _needed(stages: Iterable[Stage], outputs: Collection[str]) -> tuple[Stage, ...]:
    """The stages that the outputs depend on."""
    used, kept = set(outputs), list[Stage]()
    for stage in reversed(list(stages)):
        if stage.name in used:
            kept.append(stage)
            used |= {read.tensor for read in reads(stage.body)}
    return tuple(reversed(kept))
