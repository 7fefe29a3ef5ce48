"""ONNX's own test cases, read and evaluated without a compiler: those of its operators,
old models converted from PyTorch, small graphs, and nine networks without their weights.

    python -m benchmarks.models.onnx_cases [--only softmax] [--write tests/tables/onnx_cases.json]

One line a case that is not right. Cases of training and with something other than tensors
in and out are left out. An input that decides a shape is fixed at its value, which the
verdict says.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import node as onnx_nodes
from onnx.backend.test.loader import DATA_DIR
from onnx.reference import ReferenceEvaluator

from tuner.errors import TunerError
from tuner.models.graph import check_graph
from tuner.models.operators.formats import FORMATS
from tuner.models.reading import read_graph
from tuner.models.reference.bounded_outputs import cut
from tuner.models.reference.evaluation import evaluate_graph

RIGHT, WRONG = "right", "wrong"
FIXED = "right with an input fixed"  # at its given value, because it decides a shape
FOLDED = "right with all inputs fixed"  # ONNX's evaluator computes the result at import
_APART = ("ai.onnx.preview.training", "ai.onnx.training")
_HALF = ("float16", "bfloat16")

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    model: Any
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


def cases(only: str = "") -> Iterator[Case]:
    """Those with tensors in and out, by name."""
    yield from operators(only)
    yield from stored(only)
    yield from light(only)


def _has_tensors(model: Any) -> bool:
    """Whether all that goes in and out are tensors, and no operator is of training."""
    values = (*model.graph.input, *model.graph.output)
    apart = any(opset.domain in _APART for opset in model.opset_import)
    return not apart and all(value.type.HasField("tensor_type") for value in values)


def operators(only: str) -> Iterator[Case]:
    """The cases that ONNX generates, one operator or a few each."""
    with np.errstate(all="ignore"):
        collected = onnx_nodes.collect_testcases(None)
    yield from _with_tensors(collected, only)


def cases_of(op: str, module: str = "") -> Iterator[Case]:
    """The cases of one operator, from one module of `onnx.backend.test.case.node` (default:
    that of the operator's name). Much quicker than to collect them all."""
    with np.errstate(all="ignore"):
        importlib.import_module(f"{onnx_nodes.__name__}.{module or op.lower()}")
    collected = onnx_nodes._NodeTestCases  # of the modules loaded by now
    own = [case for case in collected if op in {node.op_type for node in case.model.graph.node}]
    yield from _with_tensors(own, "")


def _with_tensors(collected: Sequence[Any], only: str) -> Iterator[Case]:
    for case in sorted(collected, key=lambda case: case.name):
        if only not in case.name or not _has_tensors(case.model):
            continue
        inputs, outputs = case.data_sets[0]
        yield Case(
            name=case.name,
            model=case.model,
            inputs=tuple(map(_array, inputs)),
            outputs=tuple(map(_array, outputs)),
        )


def stored(only: str) -> Iterator[Case]:
    """Stored models with stored inputs and outputs, of opsets 6 to 12 most of them."""
    for path in sorted(Path(DATA_DIR).glob("*/*/model.onnx")):
        name = f"{path.parent.parent.name}/{path.parent.name}"
        model = onnx.load(path)
        if only in name and _has_tensors(model):
            data = path.parent / "test_data_set_0"
            yield Case(
                name=name,
                model=model,
                inputs=_stored(data, "input"),
                outputs=_stored(data, "output"),
            )


def light(only: str) -> Iterator[Case]:
    """Networks of 2012 to 2017 whose weights are constants that are filled in. The input
    counts up to 1, as ONNX's own test runner has it."""
    for path in sorted(Path(DATA_DIR, "light").glob("*.onnx")):
        if only in f"light/{path.stem}":
            model = onnx.load(path)
            initial = {tensor.name for tensor in model.graph.initializer}
            (value,) = (v for v in model.graph.input if v.name not in initial)
            shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
            ramp = np.arange(np.prod(shape)) / np.prod(shape)
            yield Case(
                name=f"light/{path.stem}",
                model=model,
                inputs=(ramp.reshape(shape).astype(np.float32),),
                outputs=tuple(map(_tensor, sorted(path.parent.glob(f"{path.stem}_output_*.pb")))),
            )


def _stored(folder: Path, kind: str) -> tuple[Array, ...]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return tuple(_tensor(folder / f"{kind}_{number}.pb") for number in range(count))


def _tensor(path: Path) -> Array:
    return _array(onnx.TensorProto.FromString(path.read_bytes()))


def _in_bytes(array: Array) -> Array:
    """The array as graphs hold it: small formats in bytes."""
    kept = FORMATS.get(array.dtype.name)
    return array if kept is None else kept.stored(array)


def _array(value: Any) -> Array:
    if isinstance(value, onnx.TensorProto):
        return np.asarray(numpy_helper.to_array(value))
    return np.asarray(value)


def verdict(case: Case) -> str:
    """`RIGHT`, `FIXED`, `FOLDED`, `wrong: …` or `refused: …`."""
    try:
        return _compared(case)
    except TunerError as error:
        return f"refused: {error}"
    except (RuntimeError, ValueError, TypeError) as error:
        return f"refused: {type(error).__name__}: {error}"


def _compared(case: Case) -> str:
    """With the values of all inputs, as `--inputs` gives them: those that decide a shape
    are fixed."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    initial = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initial]
    values = {}
    for value, array in zip(inputs, case.inputs, strict=False):
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for extent in array.shape:
            shape.dim.add().dim_value = extent
        values[value.name] = _in_bytes(array)
    given = list(values.values())
    bits = {name: a.view(np.uint16) if a.dtype.name == "bfloat16" else a
            for name, a in values.items()}  # fmt: skip
    graph = read_graph(model.SerializeToString(), {}, bits)
    check_graph(graph)
    with np.errstate(all="ignore"):
        tensors = evaluate_graph(graph, given)
    labels = [value.name for value in model.graph.output]
    outputs = cut(graph, [tensors[name] for name in graph.outputs])
    for got, label, right in zip(outputs, labels, case.outputs, strict=True):
        if label in graph.formats:
            got = FORMATS[graph.formats[label]].typed(got)
        if got.shape != right.shape or got.dtype != right.dtype:
            return f"{WRONG}: {got.dtype}{list(got.shape)} for {right.dtype}{list(right.shape)}"
        tolerance = 1e-2 if right.dtype.name in _HALF else 1e-3
        a, b = got.astype(np.float64), right.astype(np.float64)
        if not np.allclose(a, b, rtol=tolerance, atol=1e-5, equal_nan=True):
            wide = _in_float64(case).get(label) if right.dtype.name in _HALF else None
            if wide is None or not np.allclose(a, wide, rtol=tolerance, atol=1e-5, equal_nan=True):
                return f"{WRONG}: off by {np.nanmax(np.abs(a - b)):.3g}"
    if not graph.fixed:
        return RIGHT
    return FOLDED if len(graph.fixed) == len(graph.inputs) else FIXED


def _in_float64(case: Case) -> dict[str, Array]:
    """The outputs of ONNX's evaluator on a half-precision case without its roundings, by
    name; none where it does not run that.

    The stored outputs were rounded in each step of the definition, so they may be further
    from the right ones than a library's.
    """
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    half = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i in half:
                attribute.i = onnx.TensorProto.DOUBLE
    feeds = {
        value.name: array.astype(np.float64) if array.dtype.name in _HALF else array
        for value, array in zip(model.graph.input, case.inputs, strict=False)
    }
    try:
        with np.errstate(all="ignore"):
            outputs = ReferenceEvaluator(model).run(None, feeds)
    except (RuntimeError, ValueError, TypeError):
        return {}
    names = [value.name for value in model.graph.output]
    return {name: np.asarray(array, np.float64) for name, array in zip(names, outputs, strict=True)}


def kinds(verdicts: Mapping[str, str]) -> Counter[str]:
    """How many of each verdict, reasons aside."""
    return Counter(text.partition(":")[0] for text in verdicts.values())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--write", type=Path, help="a JSON file of verdicts by name")
    options = parser.parse_args(arguments)
    verdicts = {}
    for case in cases(options.only):
        verdicts[case.name] = verdict(case)
        if verdicts[case.name] not in (RIGHT, FIXED, FOLDED):
            print(case.name, verdicts[case.name][:200], flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in kinds(verdicts).most_common()))
    if options.write:
        options.write.write_text(json.dumps(dict(sorted(verdicts.items())), indent=0) + "\n")


if __name__ == "__main__":
    main()
