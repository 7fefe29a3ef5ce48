"""Operators of ATen that say where elements are read."""

from __future__ import annotations

from tuner.models.from_torch.call import Call, Convert
from tuner.models.operators import elementwise as maps
from tuner.models.operators import movement
from tuner.models.operators.values import Value


def view(call: Call) -> Value:
    return movement.reshape(call.value("self"), call.shape)


def permute(call: Call) -> Value:
    x = call.value("self")
    return movement.transpose(x, [axis % x.rank for axis in call["dims"]])


def expand(call: Call) -> Value:
    return movement.expand(call.value("self"), call.shape)


def take_slice(call: Call) -> Value:
    x = call.value("self")
    axis = call.get("dim", 0) % x.rank
    start, step = call.get("start") or 0, call.get("step", 1)
    first = slice(start, call.get("end"), step).indices(x.shape[axis])[0]
    return movement.along(x, axis, first, call.shape[axis], step)


def select(call: Call) -> Value:
    x = call.value("self")
    axis = call["dim"] % x.rank
    place = call["index"] % x.shape[axis]
    return movement.reshape(movement.along(x, axis, place, 1), call.shape)


def cat(call: Call) -> Value:
    values = [maps.cast(value, call.dtype) for value in call["tensors"] if value.elements]
    return movement.concatenate(values, call.get("dim", 0) % values[0].rank)


def split(call: Call) -> list[Value]:
    x = call.value("self")
    axis = call.get("dim", 0) % x.rank
    return list(movement.split(x, axis, [shape[axis] for shape in call.shapes]))


def padded(call: Call) -> Value:
    x, widths = call.value("self"), call["pad"]
    before, after = [0] * x.rank, [0] * x.rank
    for place in range(len(widths) // 2):
        before[-1 - place], after[-1 - place] = widths[2 * place], widths[2 * place + 1]
    return movement.pad(x, before, after, "constant", call.get("value", 0))


def padded_by(mode: str) -> Convert:
    def convert(call: Call) -> Value:
        x, widths = call.value("self"), call["padding"]
        before, after = [0] * x.rank, [0] * x.rank
        for place in range(len(widths) // 2):
            before[-1 - place], after[-1 - place] = widths[2 * place], widths[2 * place + 1]
        return movement.pad(x, before, after, mode)

    return convert


def repeat(call: Call) -> Value:
    x, times = call.value("self"), call["repeats"]
    x = movement.reshape(x, [*(1,) * (len(times) - x.rank), *x.shape])
    return movement.tile(x, times)


def flip(call: Call) -> Value:
    x = call.value("self")
    for axis in call["dims"]:
        x = movement.flip(x, axis % x.rank)
    return x


def roll(call: Call) -> Value:
    x = call.value("self")
    for shift, axis in zip(call["shifts"], call["dims"], strict=True):
        x = movement.roll(x, shift, axis % x.rank)
    return x


def triangle(upper: bool) -> Convert:
    return lambda call: movement.triangle(call.value("self"), call.get("diagonal", 0), upper=upper)


def fill(call: Call) -> Value:
    return movement.expand(call.builder.constant(call["value"], call.dtype), call.shape)


def full(call: Call) -> Value:
    return movement.expand(call.builder.constant(call["fill_value"], call.dtype), call.shape)
