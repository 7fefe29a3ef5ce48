"""Operators of ATen that read and write by computed indices."""

from __future__ import annotations

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import indexing, movement
from tuner.models.operators.scalars import Elem
from tuner.models.operators.values import Value


def embedding(call: Call) -> Value:
    return indexing.gather(call.value("weight"), call.value("indices"), 0)


def index_select(call: Call) -> Value:
    return indexing.gather(call.value("self"), call.value("index"), call["dim"])


def gather(call: Call) -> Value:
    return indexing.gather_elements(call.value("self"), call.value("index"), call["dim"])


def index(call: Call) -> Value:
    """NumPy's indexing by tensors of integers, which are broadcast together; their
    dimensions stand where the first of adjacent ones does, else in front."""
    x, tensors = call.value("self"), call["indices"]
    given = [axis for axis, tensor in enumerate(tensors) if tensor is not None]
    if any(tensors[axis].dtype == "bool" for axis in given):
        raise call.refusal("selects by a mask, whose result's shape depends on values")
    shape = movement.broadcast_shape(*(tensors[axis].shape for axis in given))
    spread = [movement.expand(tensors[axis], shape) for axis in given]
    adjacent = given == list(range(given[0], given[-1] + 1))
    front = given[0] if adjacent else 0
    rest = [axis for axis in range(x.rank) if axis not in given]

    def body(*i: Elem) -> Elem:
        inner = i[front : front + len(shape)]
        outer = [*i[:front], *i[front + len(shape) :]]
        places: dict[int, Elem] = dict(zip(rest, outer, strict=True))
        for axis, tensor in zip(given, spread, strict=True):
            places[axis] = indexing.position(tensor[inner], x.shape[axis])
        return x[tuple(places[axis] for axis in range(x.rank))]

    return call.builder.compute("index", call.shape, body, dtype=x.dtype)


def scatter(reduction: str) -> Convert:
    def convert(call: Call) -> Value:
        x, indices = call.value("self"), call.value("index")
        name = "src" if "src" in call.arguments else "value"
        updates = movement.expand(call.value(name, x.dtype), indices.shape)
        return indexing.scatter_elements(x, indices, updates, call["dim"], reduction)

    return convert


def scatter_reduced(call: Call) -> Results:
    """With what is there added or multiplied."""
    return scatter("add" if call["reduce"] == "add" else "mul")(call)
