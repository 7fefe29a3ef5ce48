"""Outputs whose extents are computed at run time: as a library writes them, and as the model
has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.graph import Array, Graph
from tuner.workload.bounded import first


def cut(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The model's outputs of those that a library writes: without their zeros, and without
    the outputs that hold extents."""
    labelled = [*zip(graph.labels[len(graph.inputs) :], arrays, strict=True)]
    by_label = dict(labelled)
    held = {bounded.extents for bounded in graph.bounded.values()}
    results = []
    for label, array in labelled:
        if label in held:
            continue
        bounded = graph.bounded.get(label)
        results.append(array if bounded is None else first(array, bounded, by_label))
    return results


def filled(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The inverse of `cut`. Raises ModelRefused for an output larger than its bound."""
    held = {bounded.extents: label for label, bounded in graph.bounded.items()}
    labels = graph.labels[len(graph.inputs) :]
    own = dict(zip([label for label in labels if label not in held], arrays, strict=True))
    results = []
    for label, name in zip(labels, graph.outputs, strict=True):
        if label in held:
            bounded, array = graph.bounded[held[label]], own[held[label]]
            results.append(np.array([array.shape[axis] for axis in bounded.axes], np.int64))
        elif label in graph.bounded:
            whole = np.zeros(graph.tensor(name).shape, own[label].dtype)
            if any(a > b for a, b in zip(own[label].shape, whole.shape, strict=True)):
                raise ModelRefused(
                    f"output {label!r} has the shape {list(own[label].shape)}, its bounds are "
                    f"{list(whole.shape)}"
                )
            whole[tuple(slice(0, extent) for extent in own[label].shape)] = own[label]
            results.append(whole)
        else:
            results.append(own[label])
    return results
