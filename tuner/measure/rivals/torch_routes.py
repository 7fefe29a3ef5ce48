"""PyTorch's routes to catalogue operators, in several layouts where they matter.

PyTorch is an extra and is loaded late. Weights come in the workload's layout (HWIO for
NHWC, OIHW for NCHW), and are laid out for each route before any call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tuner.measure.rivals.route import Route
from tuner.measure.rivals.torch_call import Call, Family, Params, same
from tuner.measure.rivals.torch_gathers import GATHERS

Array = np.ndarray[Any, np.dtype[Any]]


def routes(
    op: str, params: Params, inputs: Mapping[str, Array], shape: tuple[int, ...], threads: int
) -> list[Route]:
    """PyTorch's routes to the operator; none for operators that it lacks."""
    return _routes(_FAMILIES, op, params, inputs, shape, threads)


def prepacked_routes(
    op: str, params: Params, inputs: Mapping[str, Array], shape: tuple[int, ...], threads: int
) -> list[Route]:
    """The same with oneDNN, with weights (the second input) packed into its own layout.

    None where an operator has no weights.
    """
    return _routes(_PREPACKED, op, params, inputs, shape, threads)


def _routes(
    table: Mapping[str, Family],
    op: str,
    params: Params,
    inputs: Mapping[str, Array],
    shape: tuple[int, ...],
    threads: int,
) -> list[Route]:
    import torch  # noqa: PLC0415  # two seconds and a thread pool, in the rival's own process only

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    operands = tuple(_tensor(torch, array) for array in inputs.values())
    family = table.get(op)
    calls = [] if family is None else family(torch, op, params, operands, shape)
    return [_route(torch, name, call, back) for name, call, back in calls]


def _route(torch: Any, name: str, call: Callable[[], Any], back: Callable[[Any], Any]) -> Route:
    last: list[Any] = [None]

    def remember() -> None:
        last[0] = call()

    def result() -> Array:
        tensor = back(last[0]).contiguous()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.float()
        array: Array = tensor.numpy()
        return array

    return Route(name=name, call=remember, result=result)


def _tensor(torch: Any, array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _activation(torch: Any, params: Params) -> Callable[[Any], Any]:
    """The activation, in place where PyTorch can: what a careful user would write."""
    table: Mapping[str, Callable[[Any], Any]] = {
        "none": same, "relu": torch.relu_, "relu6": torch.nn.functional.relu6,
        "leaky_relu": torch.nn.functional.leaky_relu_, "gelu": torch.nn.functional.gelu,
        "tanh": torch.tanh_, "sigmoid": torch.sigmoid_, "silu": torch.nn.functional.silu,
        "exp": torch.exp, "erf": torch.erf, "sqrt": torch.sqrt, "abs": torch.abs,
    }  # fmt: skip
    return table[params.get("act") or "none"]


def _matmul(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    a = operands[0].transpose(-1, -2) if params.get("transpose_a") else operands[0]
    b = operands[1].transpose(-1, -2) if params.get("transpose_b") else operands[1]
    if operands[0].dtype == torch.int8:
        # It has no public name.
        return [("int_mm", lambda: torch._int_mm(a, b), same)] if a.dim() == 2 else []
    out = torch.empty(shape, dtype=operands[0].dtype)
    return [("matmul", lambda: torch.matmul(a, b, out=out), same)]


def _dense(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    act, bias = _activation(torch, params), operands[2] if len(operands) > 2 else None
    return [
        ("linear", lambda: act(torch.nn.functional.linear(operands[0], operands[1], bias)), same)
    ]


def _convolution(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    rank = operands[0].dim() - 2
    function = getattr(torch.nn.functional, f"conv{rank}d")
    last = _channels_last(params, rank)
    x, weights = _to_first(operands[0], last), _weights_to_oi(operands[1], last)
    groups = params.get("groups", 1)
    if op == "depthwise_conv2d":
        groups = x.shape[1]
        weights = weights.reshape(groups, 1, *weights.shape[-rank:])
    act, bias = _activation(torch, params), operands[2] if len(operands) > 2 else None
    stride, pad, dilation = params.get("stride", 1), params.get("pad", 0), params.get("dilation", 1)

    def route(name: str, layout: Any) -> Call:
        xs, ws = x.contiguous(memory_format=layout), weights.contiguous(memory_format=layout)
        return (
            name,
            lambda: act(function(xs, ws, bias, stride, pad, dilation, groups)),
            lambda y: _from_first(y, last),
        )

    return [route(name, layout) for name, layout in _layouts(torch, rank)]


def _transposed(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    last = _channels_last(params, 2)
    x = _to_first(operands[0], last)
    weights = _weights_to_oi(operands[1], last).transpose(0, 1)  # input channels first
    act, bias = _activation(torch, params), operands[2] if len(operands) > 2 else None
    stride, pad = params.get("stride", 1), params.get("pad", 0)

    def route(name: str, layout: Any) -> Call:
        xs, ws = x.contiguous(memory_format=layout), weights.contiguous(memory_format=layout)
        return (
            name,
            lambda: act(torch.nn.functional.conv_transpose2d(xs, ws, bias, stride, pad)),
            lambda y: _from_first(y, last),
        )

    return [route(name, layout) for name, layout in _layouts(torch, 2)]


def _pooling(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    last = _channels_last(params, 2)
    x, functional = _to_first(operands[0], last), torch.nn.functional
    function = functional.max_pool2d if op == "max_pool2d" else functional.avg_pool2d
    stride, pad = params.get("stride", 1), params.get("pad", 0)

    def route(name: str, layout: Any) -> Call:
        xs = x.contiguous(memory_format=layout)
        if op == "global_avg_pool2d":
            return name, lambda: xs.mean((2, 3)), lambda y: y.reshape(shape)
        return (
            name,
            lambda: function(xs, (params["KH"], params["KW"]), stride, pad),
            lambda y: _from_first(y, last),
        )

    return [route(name, layout) for name, layout in _layouts(torch, 2)]


def _normalised(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    x, functional = operands[0], torch.nn.functional
    eps, axis, size = params.get("eps", 1e-5), params.get("axis", -1), (operands[0].shape[-1],)
    table: Mapping[str, Callable[[], Any]] = {
        "softmax": lambda: torch.softmax(x, axis),
        "log_softmax": lambda: torch.log_softmax(x, axis),
        "layer_norm": lambda: functional.layer_norm(x, size, operands[1], operands[2], eps),
        "rms_norm": lambda: functional.rms_norm(x, size, operands[1], eps),
    }
    return [(op, table[op], same)]


def _reduction(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    x, axis, out = operands[0], params.get("axis", -1), torch.empty(shape, dtype=operands[0].dtype)
    table: Mapping[str, Callable[[], Any]] = {
        "reduce_sum": lambda: torch.sum(x, axis, out=out),
        "reduce_mean": lambda: torch.mean(x, axis, out=out),
        "reduce_max": lambda: torch.amax(x, axis, out=out),
    }
    return [(op, table[op], same)]


def _transpose(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    out = torch.empty(shape, dtype=operands[0].dtype)
    return [("copy", lambda: out.copy_(operands[0].T), same)]


def _elementwise(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    x, act = operands[0], _activation(torch, params)
    if op == "bias_act":
        return [("add", lambda: act(torch.add(x, operands[1])), same)]
    if params.get("act") in ("relu", "tanh", "sigmoid"):
        out, function = torch.empty_like(x), getattr(torch, params["act"])
        if params["act"] == "relu":
            return [("clamp", lambda: torch.clamp_min(x, 0, out=out), same)]
        return [(params["act"], lambda: function(x, out=out), same)]
    return [("act", lambda: act(x), same)]


def _mlp(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    act, linear = _activation(torch, params), torch.nn.functional.linear
    x, rest, count = operands[0], operands[1:], 3 if params.get("gate") else 2
    weights = rest[:count]
    offsets = rest[count:] if params.get("bias") else (None,) * count

    def layers() -> Any:
        hidden = act(linear(x, weights[0], offsets[0]))
        if count == 3:
            hidden = hidden * linear(x, weights[1], offsets[1])
        return linear(hidden, weights[-1], offsets[-1])

    return [("linear", layers, same)]


def _attention(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    q, k, v = operands[:3]
    if params.get("softcap"):
        return []
    mask = _attention_mask(torch, params, operands)
    causal = bool(params.get("causal")) and mask is None
    grouped = q.shape[1] != k.shape[1]
    attend = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, attn_mask=mask)
    return [("sdpa", lambda: attend(is_causal=causal, enable_gqa=grouped), same)]


def _attention_mask(torch: Any, params: Params, operands: tuple[Any, ...]) -> Any:
    """What is added to the scores, or which of them count; None where `is_causal` says it.

    PyTorch's causal mask begins at the first positions, ours ends at the last ones.
    """
    rows, keys = operands[0].shape[2], operands[1].shape[2]
    window, causal, kind = params.get("window", 0), params.get("causal"), params.get("mask", "none")
    if kind == "none" and not window and (rows == keys or not causal):
        return None
    own, places = torch.arange(rows)[:, None] + keys - rows, torch.arange(keys)
    seen = torch.ones((rows, keys), dtype=torch.bool)
    if causal:
        seen &= places <= own
    if window:
        seen &= places > own - window
    if kind == "keep":
        return seen & (operands[3][:, None] != 0)
    if kind == "add":
        return torch.where(seen, operands[3][:, None], float("-inf"))
    return seen


def _layouts(torch: Any, rank: int) -> list[tuple[str, Any]]:
    plain = [("channels-first", torch.contiguous_format)]
    return [*plain, ("channels-last", torch.channels_last)] if rank == 2 else plain


def _channels_last(params: Params, rank: int) -> bool:
    default = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[rank]
    return str(params.get("layout", default)).endswith("C")


def _to_first(x: Any, last: bool) -> Any:
    return x.movedim(-1, 1) if last else x


def _from_first(y: Any, last: bool) -> Any:
    return y.movedim(1, -1) if last else y


def _weights_to_oi(weights: Any, last: bool) -> Any:
    """HWIO (any spatial rank) to OIHW."""
    return weights.movedim((-1, -2), (0, 1)) if last else weights


def _packed_convolution(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    last = _channels_last(params, 2)
    x, weights = _to_first(operands[0], last), _weights_to_oi(operands[1], last)
    groups, bias = params.get("groups", 1), operands[2] if len(operands) > 2 else None
    stride, pad, dilation = params.get("stride", 1), params.get("pad", 0), params.get("dilation", 1)
    size = tuple(weights.shape[-2:])
    layer = torch.nn.Conv2d(
        x.shape[1], weights.shape[0], size, stride, pad, dilation, groups, bias is not None
    )
    return _packed(
        torch, params, layer, weights, bias, x.contiguous(), lambda y: _from_first(y, last)
    )


def _packed_dense(
    torch: Any, op: str, params: Params, operands: tuple[Any, ...], shape: tuple[int, ...]
) -> list[Call]:
    bias = operands[2] if len(operands) > 2 else None
    layer = torch.nn.Linear(operands[1].shape[1], operands[1].shape[0], bias is not None)
    return _packed(torch, params, layer, operands[1], bias, operands[0], same)


def _packed(
    torch: Any,
    params: Params,
    layer: Any,
    weights: Any,
    bias: Any,
    x: Any,
    back: Callable[[Any], Any],
) -> list[Call]:
    """The layer as oneDNN's own.

    Input and output stay in its layout, as they would between its layers.
    """
    if x.dtype != torch.float32 or (params.get("act") or "none") not in (
        "none",
        "relu",
        "gelu",
        "tanh",
        "sigmoid",
    ):
        return []
    layer.weight.data = weights.contiguous()
    if bias is not None:
        layer.bias.data = bias
    from torch.utils import mkldnn  # noqa: PLC0415  # as above

    packed, operands, act = (
        mkldnn.to_mkldnn(layer.eval()),
        x.to_mkldnn(),
        _activation(torch, params),
    )
    return [("prepacked", lambda: act(packed(operands)), lambda y: back(y.to_dense()))]


_PREPACKED: Mapping[str, Family] = {"conv2d": _packed_convolution, "dense": _packed_dense}

_FAMILIES: Mapping[str, Family] = {
    "matmul": _matmul, "batch_matmul": _matmul, "dense": _dense, "conv1d": _convolution,
    "conv2d": _convolution, "conv3d": _convolution, "depthwise_conv2d": _convolution,
    "conv2d_transpose": _transposed, "max_pool2d": _pooling, "avg_pool2d": _pooling,
    "global_avg_pool2d": _pooling, "softmax": _normalised, "log_softmax": _normalised,
    "layer_norm": _normalised, "rms_norm": _normalised, "reduce_sum": _reduction,
    "reduce_mean": _reduction, "reduce_max": _reduction, "transpose": _transpose,
    "elementwise": _elementwise, "bias_act": _elementwise, "attention": _attention, "mlp": _mlp,
    **GATHERS,
}  # fmt: skip
