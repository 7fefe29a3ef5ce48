"""`tuner ops` and `tuner space`: what can be tuned, and what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import documents, units
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import Notation, Shapes, TargetText, Threads, read_workload

if TYPE_CHECKING:
    from tuner.workload.operator import Operator, Param


def ops(context: typer.Context, op: Annotated[str | None, typer.Argument(metavar="OP", help="one operator")] = None) -> None:
    """Lists the catalogue's operators, or the parameters and the program of one."""
    from tuner.workload.catalogue import CATALOGUE, operator

    output = Invocation.of(context).output
    if op is None:
        if output.as_json:
            output.items([_operator(found) for found in CATALOGUE])
        else:
            required = [" ".join(param.name for param in found.params if param.default is None) for found in CATALOGUE]
            listed = [(found.name, needed, found.about) for found, needed in zip(CATALOGUE, required, strict=True)]
            output.table(("operator", "needs", "computes"), listed)
        return
    found = operator(op)
    if output.as_json:
        output.document(_operator(found))
        return
    output.line(f"{found.name}: {found.about}")
    output.line()
    rows = [
        (param.name, _takes(param), "needed" if param.default is None else str(param.default), param.about)
        for param in found.params
    ]
    output.table(("parameter", "takes", "default", "is"), rows)
    output.line()
    output.line(_program(found))


def _operator(found: Operator) -> dict[str, Any]:
    return {
        "name": found.name,
        "summary": found.about,
        "notation": _program(found),
        "parameters": [
            {
                "name": param.name,
                "type": param.kind,
                "default": param.default,
                "choices": list(param.choices) or None,
                "description": param.about,
            }
            for param in found.params
        ],
    }


def _program(found: Operator) -> str:
    """The operator in the notation: its defaults, the first choice where there is none; extents stay symbols."""
    given = {param.name: param.choices[0] if param.choices else 8 for param in found.params if param.default is None}
    return found.text(found.filled(given))


def _takes(param: Param) -> str:
    if param.kind == "choice":
        return ", ".join(str(choice) for choice in param.choices)
    return (
        f"{param.least} to {param.most}"
        if param.kind == "int"
        else {"extent": "1 or more", "bool": "true, false"}.get(param.kind, param.kind)
    )


def space(
    context: typer.Context,
    spec: Annotated[str | None, typer.Argument(metavar="SPEC", help="a workload, such as matmul:M=512,N=512,K=512")] = None,
    notation: Notation = None,
    shapes: Shapes = None,
    target: TargetText = None,
    threads: Threads = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="which config is the example")] = None,
) -> None:
    """Shows a workload's sketches, their knobs with the number of values, the size of the space, and one config as an example."""
    import numpy as np

    from tuner.spaces.cpu import space_for
    from tuner.target.detect import parse_target

    invocation = Invocation.of(context)
    workload = read_workload(spec, notation, shapes)
    settings = invocation.settings(target=target, threads=threads, seed=seed).values
    machine = parse_target(settings.target)
    found = space_for(workload, machine, settings.threads)
    example = found.config(found.sample(np.random.default_rng(settings.seed), 1)[0])
    if invocation.output.as_json:
        invocation.output.document(
            {
                "workload": documents.workload(workload),
                "target": documents.target(machine),
                "threads": settings.threads,
                "size": found.size,
                "sketches": [
                    {
                        "name": sketch.name,
                        "size": sketch.size,
                        "knobs": [
                            {"name": knob.name, "values": list(documents.config({"v": v})["v"] for v in knob.values)}
                            for knob in sketch.knobs
                        ],
                    }
                    for sketch in found.sketches
                ],
                "example": documents.config(example),
            }
        )
        return
    output = invocation.output
    output.line(f"{workload.spec} on {machine.name}, threads {settings.threads}")
    output.line(f"{units.count(found.size)} configs in {len(found.sketches)} sketch{'es' if len(found.sketches) > 1 else ''}")
    for sketch in found.sketches:
        output.line()
        output.line(f"{sketch.name}: {units.count(sketch.size)} configs")
        rows = [(knob.name, str(len(knob.values)), _some(knob.values)) for knob in sketch.knobs]
        output.table(("knob", "values", "such as"), rows, right=("values",))
    output.line()
    output.line(f"example: {documents.config_text(example)}")


def _some(values: tuple[Any, ...]) -> str:
    shown = values if len(values) <= 6 else (*values[:3], "…", *values[-2:])
    return ", ".join(documents.value_text(value) for value in shown)
