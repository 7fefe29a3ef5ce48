"""Quantises a float network: ranges from calibration data, losses by running it.

Each layer is quantised alone first. Those that lose most stay in float, as many as it
takes to keep within the loss that is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tuner.models.arrays import Array
from tuner.models.errors import ModelRefused
from tuner.models.files.batch_norms import fold_batch_norms
from tuner.models.files.given_inputs import inputs_of
from tuner.models.files.input_shapes import InputShapes
from tuner.models.files.input_values import InputValues
from tuner.models.files.onnx_file import LIMITS, opset_of, parsed, read_model
from tuner.models.from_onnx.reader import without_functions
from tuner.models.quantize.data import DeclaredInput, one_row, row_count, runs_of
from tuner.models.quantize.layers import Layer, Plan, name_of, plan_of
from tuner.models.quantize.losses import agreement_of, loss_of
from tuner.models.quantize.network import Network
from tuner.models.quantize.qdq import constant_bytes, with_integers
from tuner.models.quantize.ranges import Histogram, Range
from tuner.models.quantize.result import Choice, LayerLoss, Options, Quantized
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of
from tuner.workload.grammar import suggestion

_LEAST_OPSET = 13  # the first with a scale for each channel
_MEASURED_ROWS = 64  # on which losses are measured, at most
_LOSSES_SHARE = 0.6  # of the time that measuring losses may take
_INTEGER_OPS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")


def quantize(
    content: bytes | memoryview,
    values: InputValues,
    shapes: InputShapes,
    options: Options,
    clock: Callable[[], float] = time.monotonic,
) -> Quantized:
    """The network of an ONNX file with integers where that loses little.

    `values` is calibration data, see `data.runs_of`. Raises ModelRefused for a file that
    is no float network, or none that can be evaluated, for data that does not fit, and
    where no layer can be quantised within the loss.
    """
    begin = clock()
    base = _prepared(content)
    declared = [_declared(value) for value in inputs_of(base.graph)]
    runs = runs_of(declared, values, options.rows)
    model = read_model(base.SerializeToString(), shapes, values=runs[0])
    network = Network(model)
    plan = _checked_plan(model, network, options)
    calibration = _calibrated(network, plan, runs, options)
    left_s = options.seconds - (clock() - begin)
    measured = _Measured(model, network, plan, calibration, runs, left_s * _LOSSES_SHARE)
    losses = {layer.place: measured.outcome([layer])[0] for layer in plan.layers}
    choices, networks = _choices(measured, losses, options.max_loss)
    chosen = next(layers for choice, layers in zip(choices, networks, strict=True) if choice.chosen)
    row = one_row(declared, runs[0])
    return Quantized(
        content=_written(base, plan, chosen, calibration, network),
        layers=tuple(_row(layer, losses, chosen, network) for layer in plan.layers),
        choices=tuple(choices),
        left=plan.left,
        float_bytes=constant_bytes(base),
        rows=sum(map(row_count, runs)),
        measured_rows=sum(map(row_count, measured.runs)),
        kernels=tuple(
            tuple(
                workloads_of(
                    read_graph(_written(base, plan, layers, calibration, network), shapes, row)
                )
            )
            for layers in (networks if options.kernels else ())
        ),
    )


# --- the file


def _prepared(content: bytes | memoryview) -> Any:
    """The float network with its functions inlined, normalisations folded, in an opset
    that has integers by channel."""
    model = parsed(content, LIMITS)
    bodies = (model.graph, *model.functions)
    for node in (node for body in bodies for node in body.node):
        if node.op_type in _INTEGER_OPS or node.op_type.startswith(("QLinear", "QGemm")):
            raise ModelRefused(
                f"the network is quantised already: {name_of(node)[:80]!r} is {node.op_type}; "
                f"give the float network that it was made from"
            )
    model = without_functions(model)
    if opset_of(model) < _LEAST_OPSET:
        try:
            model = onnx.version_converter.convert_version(model, _LEAST_OPSET)
        except (RuntimeError, ValueError, onnx.version_converter.ConvertError) as error:
            text = " ".join(str(error).split())
            raise ModelRefused(
                f"the model is of opset {opset_of(model)} and cannot be converted to "
                f"{_LEAST_OPSET}: {text[:300]}; export it with opset {_LEAST_OPSET} or later"
            ) from error
    fold_batch_norms(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


def _declared(value: Any) -> DeclaredInput:
    kind = value.type.tensor_type
    return DeclaredInput(
        name=value.name,
        shape=tuple(
            d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None
            for d in kind.shape.dim
        ),
        dtype=np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)),
    )


def _checked_plan(model: Any, network: Network, options: Options) -> Plan:
    names = [name_of(node) for node in model.graph.node]
    for name in options.keep:
        if name not in names:
            raise ModelRefused(
                f"--keep has {name[:80]!r}, which no operator of the model is called"
                f"{suggestion(name[:80], names) or f'; give names such as {names[0][:80]!r}'}"
            )
    plan = plan_of(model, network.constants, options.keep)
    if not plan.layers:
        reasons = "; ".join(f"{left.op} ({left.name[:60]!r}) {left.reason}" for left in plan.left)
        raise ModelRefused(
            f"the network has no operator that can be quantised: {reasons[:300] or 'no products'}"
        )
    return plan


def _written(
    base: Any, plan: Plan, chosen: Sequence[Layer], ranges: Mapping[str, Range], network: Network
) -> bytes:
    content: bytes = with_integers(
        base, plan, chosen, ranges, network.constants
    ).SerializeToString()
    return content


# --- ranges


def _calibrated(
    network: Network, plan: Plan, runs: Sequence[Mapping[str, Array]], options: Options
) -> dict[str, Range]:
    """The range of each tensor that decides one."""
    histograms = {name: Histogram() for name in plan.tensors(plan.layers).values()}
    for run in runs:
        values = network.run(run)
        for name, histogram in histograms.items():
            array = np.asarray(values[name])
            if not np.isfinite(array).all():
                raise ModelRefused(
                    f"the network computes NaN or infinity for {name[:80]!r} of the calibration "
                    f"data; give data that it is for"
                )
            histogram.add(array)
    return {
        name: histogram.range(options.method, options.percentile)
        for name, histogram in histograms.items()
    }


# --- losses


class _Measured:
    """Networks with some layers quantised, run on the rows that there is time for."""

    def __init__(
        self,
        model: Any,
        network: Network,
        plan: Plan,
        ranges: Mapping[str, Range],
        runs: Sequence[Mapping[str, Array]],
        seconds: float,
    ) -> None:
        self.model, self.plan, self.ranges, self.network = model, plan, ranges, network
        # A first run says what one takes, and how many rows its values fill the memory for.
        begin = time.monotonic()
        self.before = [network.run(runs[0])]
        run_s = max(time.monotonic() - begin, 1e-6)
        passes = len(plan.layers) + 2 * len(_counts(len(plan.layers)))
        nbytes = sum(np.asarray(value).nbytes for value in self.before[0].values())
        rows = max(row_count(runs[0]), 1)
        affordable = min(seconds / (run_s * passes), (2 << 30) / nbytes, _MEASURED_ROWS / rows)
        self.runs = list(runs[: max(int(affordable), 1)])
        self.before += [network.run(run) for run in self.runs[1:]]
        self.right = [network.results(values) for values in self.before]

    def outcome(self, layers: Sequence[Layer]) -> tuple[float, float | None, int]:
        """Loss, agreement and bytes of constants with these layers as integers."""
        constants = self.network.constants
        model = with_integers(self.model, self.plan, layers, self.ranges, constants)
        network = Network(model)
        results = [
            network.results(network.run(run, before))
            for run, before in zip(self.runs, self.before, strict=True)
        ]
        loss, agreement = loss_of(results, self.right), agreement_of(results, self.right)
        return loss, agreement, constant_bytes(model)


def _counts(layers: int) -> list[int]:
    """Numbers of layers in float that are tried: none, then twice as many each time."""
    counts = [0]
    while (more := max(2 * counts[-1], 1)) < layers:
        counts.append(more)
    return counts


def _choices(
    measured: _Measured, losses: Mapping[int, float], allowed: float
) -> tuple[list[Choice], list[list[Layer]]]:
    """The networks that lose less than any with fewer layers in float, at last the float one,
    and the layers that are integers in each.

    Chosen is the first within the loss that is allowed.
    """
    ordered = sorted(measured.plan.layers, key=lambda layer: -losses[layer.place])
    choices: list[Choice] = []
    networks: list[list[Layer]] = []
    for count in _counts(len(ordered)):
        layers = sorted(ordered[count:], key=lambda layer: layer.place)
        loss, agreement, nbytes = measured.outcome(layers)
        if all(loss < other.loss for other in choices):
            chosen = loss <= allowed and not any(other.chosen for other in choices)
            choices.append(
                Choice(floats=count, loss=loss, agreement=agreement, nbytes=nbytes, chosen=chosen)
            )
            networks.append(layers)
    if not any(choice.chosen for choice in choices):
        least = min(choice.loss for choice in choices)
        raise ModelRefused(
            f"with any layer as integers the outputs are off by {least:.2%}, {allowed:.2%} is "
            f"allowed; raise --max-loss, or try another --method"
        )
    nbytes = constant_bytes(measured.model)
    agreement = None if choices[0].agreement is None else 1.0
    choices.append(
        Choice(floats=len(ordered), loss=0.0, agreement=agreement, nbytes=nbytes, chosen=False)
    )
    return choices, [*networks, []]


def _row(
    layer: Layer, losses: Mapping[int, float], chosen: Sequence[Layer], network: Network
) -> LayerLoss:
    weight = np.asarray(network.constants[layer.weight]) if layer.weight else np.empty((0,))
    channels = weight.shape[layer.axis]
    return LayerLoss(
        name=layer.name,
        op=layer.op,
        loss=losses[layer.place],
        float_bytes=4 * weight.size,
        nbytes=weight.size + 4 * channels,
        quantized=layer in chosen,
    )
