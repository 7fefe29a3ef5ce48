"""`tuner ops` and `tuner space`: the catalogue of operators, and spaces of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner import units
from tuner.cli import documents
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import Notation, Shapes, TargetText, Threads, read_workload
from tuner.errors import WorkloadError

if TYPE_CHECKING:
    from tuner.api.schemas import OperatorAnswer, OperatorParameter
    from tuner.cli.output import Output
    from tuner.spaces.core.space import Combination, Space


def ops(
    context: typer.Context,
    op: Annotated[str | None, typer.Argument(metavar="OP", help="one operator")] = None,
) -> None:
    """Lists the catalogue's operators, or the parameters and the program of one."""
    invocation = Invocation.of(context)
    output = invocation.output
    with invocation.fleet() as fleet:
        operators = fleet.operators()
    if op is None:
        if output.as_json:
            output.items([_operator(operator) for operator in operators])
        else:
            listed = [
                (
                    operator.name,
                    " ".join(param.name for param in _needed(operator)),
                    operator.summary,
                )
                for operator in operators
            ]
            output.table(("operator", "needs", "computes"), listed)
        return
    chosen = _named(op, operators)
    if output.as_json:
        output.document(_operator(chosen))
        return
    output.line(f"{chosen.name}: {chosen.summary}")
    output.line()
    rows = [
        (
            param.name,
            _takes(param),
            "needed" if param.default is None else str(param.default),
            param.description,
        )
        for param in chosen.parameters
    ]
    output.table(("parameter", "takes", "default", "is"), rows)
    output.line()
    output.line(chosen.notation or "")


def _named(name: str, operators: Sequence[OperatorAnswer]) -> OperatorAnswer:
    """The operator with this name. Raises WorkloadError."""
    from tuner.workload.catalogue import operator

    for candidate in operators:
        if candidate.name == name:
            return candidate
    operator(name)  # raises for an unknown name, and suggests the nearest
    raise WorkloadError(
        f"the service has no operator {name!r}: it is of another version", parameter="op"
    )


def _operator(answer: OperatorAnswer) -> dict[str, Any]:
    return answer.model_dump(mode="json")


def _needed(answer: OperatorAnswer) -> list[OperatorParameter]:
    """The parameters without a default."""
    return [param for param in answer.parameters if param.default is None]


def _takes(param: OperatorParameter) -> str:
    """The values that a parameter takes."""
    if param.choices:
        return ", ".join(str(choice) for choice in param.choices)
    if param.least is not None:
        return f"{param.least} to {param.most}"
    return {"extent": "1 or more", "bool": "true, false"}.get(param.type, param.type)


def space(
    context: typer.Context,
    spec: Annotated[
        str | None,
        typer.Argument(metavar="SPEC", help="a workload, such as matmul:M=512,N=512,K=512"),
    ] = None,
    notation: Notation = None,
    shapes: Shapes = None,
    target: TargetText = None,
    threads: Threads = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="which config is the example")
    ] = None,
) -> None:
    """Shows a workload's sketches, their knobs with the number of values, the size of
    the space, and one config as an example."""
    import numpy as np

    from tuner.spaces.by_target import space_of

    invocation = Invocation.of(context)
    workload = read_workload(spec, notation, shapes)
    settings = invocation.settings(target=target, threads=threads, seed=seed).values
    with invocation.fleet(target=target, threads=threads, seed=seed) as fleet:
        machine = fleet.target()
    knobs = space_of(workload, machine, settings.threads).space
    example = knobs.config(knobs.sample(np.random.default_rng(settings.seed), 1)[0])
    output = invocation.output
    if output.as_json:
        output.document(
            {
                "workload": documents.workload(workload),
                "target": documents.target(machine),
                "threads": settings.threads,
                "size": knobs.size,
                "sketches": [_sketch(sketch) for sketch in knobs.combinations],
                "example": documents.config(example),
            }
        )
        return
    output.line(f"{workload.spec} on {machine.name}, threads {settings.threads}")
    _print_sketches(output, knobs)
    output.line()
    output.line(f"example: {units.config_text(example)}")


def _sketch(sketch: Combination) -> dict[str, Any]:
    """A sketch as JSON values."""
    return {
        "name": sketch.name,
        "size": sketch.size,
        "knobs": [
            {
                "name": knob.name,
                "values": [documents.plain_value(value) for value in knob.values],
            }
            for knob in sketch.knobs
        ],
    }


def _print_sketches(output: Output, knobs: Space) -> None:
    output.line(
        f"{units.count(knobs.size)} configs in {len(knobs.combinations)} "
        f"sketch{'es' if len(knobs.combinations) > 1 else ''}"
    )
    for sketch in knobs.combinations:
        output.line()
        output.line(f"{sketch.name}: {units.count(sketch.size)} configs")
        rows = [(knob.name, str(len(knob.values)), _some(knob.values)) for knob in sketch.knobs]
        output.table(("knob", "values", "such as"), rows, right=("values",))


def _some(values: tuple[Any, ...]) -> str:
    """A few of a knob's values, the first and last among them."""
    shown = values if len(values) <= 6 else (*values[:3], "…", *values[-2:])
    return ", ".join(units.value_text(value) for value in shown)
