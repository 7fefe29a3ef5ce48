"""Generator of docs/reference/operators.md from the catalogue.

`python -m tuner.workload.handbook` prints the page. A test compares the page with the
catalogue.
"""

from __future__ import annotations

import re
import sys

from tuner.workload.catalogue import CATALOGUE
from tuner.workload.operator import Operator, Param, Value

_HEAD = """# Operators

The catalogue. A workload is written `op:NAME=VALUE,…`, for example
`conv2d:N=1,H=56,W=56,CI=64,CO=64,KH=3,KW=3,pad=1,act=relu`. Each operator is a program in the
[notation](notation.md), shown here with its default parameters. Inputs are in the order of the
program, row-major.

Any spec also takes:

- `const=W`: an input known ahead of time, several as `const=W+bias`. It may be prepacked and is
  part of the key.
- `numerics=strict|fast|tensor` ([numerics](../explanation/numerics.md)).
- a range as an extent (`M=1..512`). The spec is then a portfolio.

Conventions:

- dtypes: float16 and bfloat16 are summed in float32 and rounded once. int8 is summed in int32 and
  gives int32.
- `act` is one of {acts}.
  gelu is the erf form, silu is x·sigmoid(x). Integers take none, relu and relu6.
- Convolution weights are HWIO for NHWC and OIHW for NCHW, likewise in one and three dimensions.
  With groups, I is CI/groups.
- `pad` adds zeros on each side of each axis. Max pooling's padding never wins, and a window always
  meets at least one element.
- `avg_pool2d` divides by the whole window, padding included, unless `count_include_pad=false`.
- `embedding` clamps indices into the table.

| operator | does | inputs | dtypes |
|---|---|---|---|
"""


def page() -> str:
    """The text of docs/reference/operators.md."""
    act = next(param for operator in CATALOGUE for param in operator.params if param.name == "act")
    rows = [
        f"| [{op.name}](#{op.name}) | {op.about} | {', '.join(inputs(op))} | "
        f"{', '.join(op.dtypes)} |\n"
        for op in CATALOGUE
    ]
    head = _HEAD.replace("{acts}", ", ".join(map(str, act.choices)))
    return head + "".join(rows) + "".join(_section(operator) for operator in CATALOGUE)


def example(operator: Operator) -> dict[str, Value]:
    """Parameters of an example of an operator: extents of 8, defaults, and a bias."""
    given: dict[str, Value] = {param.name: 8 for param in operator.params if param.kind == "extent"}
    shown: dict[str, Value] = {name: 3 for name in given if name.startswith("K") and len(name) == 2}
    shown |= {
        param.name: param.choices[0]
        for param in operator.params
        if param.kind == "choice" and param.default is None
    }
    bias = {"bias": True} if any(param.name == "bias" for param in operator.params) else {}
    return operator.filled({**given, **shown, **bias})


def inputs(operator: Operator) -> list[str]:
    """Names of an operator's inputs in their order, as the table shows them."""
    head = operator.text(example(operator)).partition("->")[0].partition("(")[2]
    names = re.findall(r"(\w+): \w+\[", head)  # ranges in facts have colons too
    return [
        f"{name} (with bias=true)"
        if name == "bias" and "bias" in {p.name for p in operator.params}
        else name
        for name in names
    ]


def _section(operator: Operator) -> str:
    rows = "".join(
        f"| `{param.name}` | {_takes(param)} | {_default(param)} | {param.about} |\n"
        for param in operator.params
    )
    table = "| parameter | takes | default | |\n|---|---|---|---|\n" + rows
    about = operator.about[0].upper() + operator.about[1:]
    program = operator.text(example(operator))
    return f"\n## {operator.name}\n\n{about}.\n\n{table}\n```\n{program}\n```\n"


def _takes(param: Param) -> str:
    match param.kind:
        case "extent":
            return "extent"
        case "int":
            return f"{param.least} to {param.most}"
        case "float":
            return "0 to 1"
        case "bool":
            return "true, false"
        case "choice":
            return ", ".join(map(str, param.choices))


def _default(param: Param) -> str:
    return (
        ""
        if param.default is None
        else str(param.default).lower()
        if isinstance(param.default, bool)
        else str(param.default)
    )


if __name__ == "__main__":
    sys.stdout.write(page())
