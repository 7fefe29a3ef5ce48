"""An operator of the catalogue: typed parameters and a template of a program.

A program is a template: `@{name}` is a parameter or a piece of text,
`@{flag|then|else}` and `@{name=value|then|else}` choose. Integer parameters stay shape
symbols of the program, so that stride or pad read as they would in a text of one's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.errors import WorkloadError
from tuner.workload.grammar import suggestion

Value = int | float | str | bool
MAX_EXTENT = 2**31 - 1

# Activations over a value v; gelu is the erf form (Hendrycks and Gimpel, 2016), silu is
# x * sigmoid(x).
ACTIVATIONS: Mapping[str, str] = {
    "none": "v",
    "relu": "max(v, 0)",
    "relu6": "min(max(v, 0), 6)",
    "leaky_relu": "where(v > 0, v, v * 0.01)",
    "gelu": "v * 0.5 * (1 + erf(v * 0.7071067811865476))",
    "silu": "v / (1 + exp(-v))",
    "sigmoid": "1 / (1 + exp(-v))",
    "tanh": "tanh(v)",
}
FUNCTIONS: Mapping[str, str] = {
    **ACTIVATIONS,
    "exp": "exp(v)",
    "log": "log(v)",
    "sqrt": "sqrt(v)",
    "rsqrt": "rsqrt(v)",
    "erf": "erf(v)",
    "abs": "abs(v)",
    "neg": "-v",
    "square": "v * v",
}
INTEGER_ACTIVATIONS = ("none", "relu", "relu6", "abs", "neg", "square")
LOWEST = {"int8": "-128", "int32": "-2147483648"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A parameter of a catalogue operator."""

    name: str
    kind: Literal["extent", "int", "float", "bool", "choice"]
    about: str = ""
    default: Value | None = None  # None: must be given
    choices: tuple[Value, ...] = ()  # of kind choice
    least: int = 0  # of kind int
    most: int = 4096  # of kind int
    usual: int | None = None  # of kind extent: what a form suggests


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that users call by name: `name:PARAMETER=value,...`.

    `program` and `pieces` are templates. In them `@{p}` is the value of parameter `p`
    or the piece `p`; `@{p|a|b}` is `a` where `p` is true, else `b`; `@{p=v|a|b}` is `a`
    where `p` is `v`, else `b`. These names are defined too: `sum` (dtype of a sum),
    `wide` (float32 or float64), `lowest` (the least value of the dtype), `value` (the
    function `act` of X[i, j]), `activation` (that of the piece `argument`), `main` (the
    tensor before bias and activation), and `epilogue` (the stages of bias and activation).
    """

    name: str
    about: str
    params: tuple[Param, ...]
    program: str  # template of the notation
    dtypes: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
    # further templates, by the name that the program calls them
    pieces: Mapping[str, str] = field(default_factory=dict)
    result: str = "Y"  # of the output, for the bias and activation stages
    channel: str = ""  # iterator the bias runs over
    divides: tuple[tuple[str, str], ...] = ()  # (a, b): a must be 0 or divide b
    no_less: tuple[tuple[str, str], ...] = ()  # (a, b): a must be 0 or at least b
    # (input extent, kernel extent): the kernel must fit the padded input
    windows: tuple[tuple[str, str], ...] = ()
    # extents of a matrix of which `density` is the share that the places E have
    places: tuple[str, ...] = ()
    # whether `pad` must be less than a window's reach, so that no window is all padding
    pads_less_than_window: bool = False

    def param(self, name: str) -> Param:
        for param in self.params:
            if param.name == name:
                return param
        names = [param.name for param in self.params]
        raise WorkloadError(
            f"{self.name} has no parameter {name!r}{suggestion(name, names)}; it takes "
            f"{', '.join(names)}",
            parameter=name,
        )

    def filled(self, given: Mapping[str, object]) -> dict[str, Value]:
        """All parameters in their declared order, checked, with defaults filled in.

        Values may be text, as on a command line. Raises `WorkloadError` naming the
        parameter for one that is unknown, missing or out of its range.
        """
        for name in given:
            self.param(name)
        values: dict[str, Value] = {}
        for param in self.params:
            raw = given.get(param.name)
            if raw is None and param.default is None:
                raise WorkloadError(
                    f"{self.name} needs {param.name} ({param.about}); add {param.name}=…",
                    parameter=param.name,
                )
            values[param.name] = checked(param, param.default if raw is None else raw)
        self._check_together(values)
        return values

    def _check_together(self, values: Mapping[str, Value]) -> None:
        for name, least in self.no_less:
            if 0 < int(values[name]) < int(values[least]):
                raise WorkloadError(
                    f"{name}={values[name]} must be 0 or at least {least}={values[least]}",
                    parameter=name,
                )
        for small, large in self.divides:
            if int(values[small]) and int(values[large]) % int(values[small]):
                message = f"{small}={values[small]} must divide {large}={values[large]}"
                raise WorkloadError(message, parameter=small)
        if self.places and not values["density"]:
            raise WorkloadError(
                "density=0 leaves the matrix without places; give more than 0, at most 1",
                parameter="density",
            )
        for extent, kernel in self.windows:
            pad, dilation = int(values.get("pad", 0)), int(values.get("dilation", 1))
            reach, padded = dilation * (int(values[kernel]) - 1) + 1, int(values[extent]) + 2 * pad
            if reach > padded:
                message = (
                    f"{kernel}={values[kernel]} reaches over {reach}, "
                    f"{extent}={values[extent]} with pad={pad} has only {padded}"
                )
                raise WorkloadError(
                    f"{message}; use a smaller kernel or more padding", parameter=kernel
                )
            if self.pads_less_than_window and pad >= reach:
                raise WorkloadError(
                    f"pad={pad} must be smaller than the window, which reaches over {reach}",
                    parameter="pad",
                )
        act = values.get("act")
        if (
            str(values.get("dtype", "")).startswith("int")
            and act is not None
            and act not in INTEGER_ACTIVATIONS
        ):
            allowed = [
                choice for choice in self.param("act").choices if choice in INTEGER_ACTIVATIONS
            ]
            raise WorkloadError(
                f"act={act} has no integer form; integers take {', '.join(map(str, allowed))}",
                parameter="act",
            )

    def text(self, values: Mapping[str, Value]) -> str:
        """The program in the notation for checked parameters; its shape symbols are
        `symbols(values)`."""
        dtype = str(values.get("dtype", "float32"))
        fields: dict[str, str] = {name: _written(value) for name, value in values.items()}
        fields |= {
            "sum": "int32" if dtype == "int8" else dtype,
            "lowest": LOWEST.get(dtype, "-inf"),
            "wide": "f64" if dtype == "float64" else "f32",
        }
        fields |= (
            {"value": re.sub(r"\bv\b", "X[i, j]", FUNCTIONS[str(values["act"])])}
            if "act" in values
            else {}
        )
        if "argument" in self.pieces:
            act = FUNCTIONS[str(values["act"])]
            fields["activation"] = re.sub(r"\bv\b", "@{argument}", act)
        biased, activated = values.get("bias") is True, values.get("act", "none") != "none"
        fields["main"] = "T" if biased or activated else self.result
        text = self.program
        if "@{epilogue}" in text:
            text = text.replace(
                "@{epilogue}",
                _epilogue(
                    self.result,
                    self.channel,
                    biased,
                    FUNCTIONS[str(values.get("act", "none"))] if activated else "",
                ),
            )
        return expand(text, {**self.pieces, **fields}, values)

    def symbols(self, values: Mapping[str, Value], text: str) -> dict[str, int]:
        """The integer parameters that occur in the text, as shape symbols, and the places E."""
        words = set(re.findall(r"[A-Za-z_]\w*", text))
        counted = {}
        if self.places:
            elements = math.prod(int(values[name]) for name in self.places)
            counted["E"] = max(1, round(float(values["density"]) * elements))
        return counted | {
            param.name: int(values[param.name])
            for param in self.params
            if param.kind in ("extent", "int") and param.name in words
        }


def _epilogue(result: str, channel: str, biased: bool, activation: str) -> str:
    lines, current = [], "T"
    if biased:
        name = "U" if activation else result
        lines.append(f"{name}[@{{at}}] = {current}[@{{at}}] + bias[{channel}]")
        current = name
    if activation:
        lines.append(f"{result}[@{{at}}] = " + re.sub(r"\bv\b", f"{current}[@{{at}}]", activation))
    return "\n  ".join(lines)


def _written(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_FIELD = re.compile(r"@\{([^{}@|]*)(?:\|([^{}@|]*)\|([^{}@|]*))?\}")


def expand(text: str, fields: Mapping[str, str], values: Mapping[str, Value]) -> str:
    """The template with its fields replaced, innermost first."""

    def replace(match: re.Match[str]) -> str:
        name, then, other = match.groups()
        if then is None:
            return fields[name]
        flag, _, choice = name.partition("=")
        holds = _written(values[flag]) == choice if choice else values[flag] is True
        return then if holds else other

    while _FIELD.search(text):
        text = _FIELD.sub(replace, text)
    return "\n".join(line.rstrip() for line in text.strip().split("\n") if line.strip())


def checked(param: Param, raw: object) -> Value:
    """The value in the parameter's type.

    Raises `WorkloadError` naming the parameter, the value and the values it takes.
    """
    match param.kind:
        case "extent":
            return _integer(param.name, raw, 1, MAX_EXTENT)
        case "int":
            return _integer(param.name, raw, param.least, param.most)
        case "bool":
            spellings: dict[object, bool] = {
                True: True,
                False: False,
                "true": True,
                "false": False,
                "1": True,
                "0": False,
            }
            key = raw.lower() if isinstance(raw, str) else raw
            if not isinstance(key, bool | str) or key not in spellings:
                raise WorkloadError(
                    f"{param.name}={raw} is not true or false", parameter=param.name
                )
            return spellings[key]
        case "float":
            return _real(param.name, raw)
        case "choice":
            by_text = {_written(choice): choice for choice in param.choices}
            if isinstance(raw, bool) or str(raw) not in by_text:
                close = suggestion(str(raw), list(by_text))
                raise WorkloadError(
                    f"{param.name}={raw} is not one of {', '.join(by_text)}{close}",
                    parameter=param.name,
                )
            return by_text[str(raw)]


def _integer(name: str, raw: object, least: int, most: int) -> int:
    if isinstance(raw, str) and ".." in raw:
        raise WorkloadError(
            f"{name}={raw} is a range; ranges are for portfolios, here give one number",
            parameter=name,
        )
    text = (
        raw
        if isinstance(raw, str)
        else str(raw)
        if isinstance(raw, int) and not isinstance(raw, bool)
        else ""
    )
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise WorkloadError(
            f"{name}={str(raw)[:40]} is not an integer from {least} to {most}", parameter=name
        )
    value = int(text)
    if not least <= value <= most:
        raise WorkloadError(f"{name}={value} is outside {least} to {most}", parameter=name)
    return value


def _real(name: str, raw: object) -> float:
    try:
        value = (
            float(raw)
            if isinstance(raw, int | float | str) and not isinstance(raw, bool)
            else math.nan
        )
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise WorkloadError(f"{name}={str(raw)[:40]} is not a number from 0 to 1", parameter=name)
    return value
