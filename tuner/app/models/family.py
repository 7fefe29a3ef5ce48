"""Models for several values of an extent: one function made of the model for each.

For a range of batch sizes a few members serve all, by the plan of any portfolio. Rows
must be computed independently, which is checked: batches of several blocks and padded
batches are compared with ONNX's reference evaluator before anything is exported.

Listed extents may be anything, such as lengths of a sequence. Each has a member, and no
other is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from tuner.errors import UsageError
from tuner.export.kernel import ExportKernel
from tuner.export.portfolio import choose_extents, copy_s, interpolated, plan_rows
from tuner.models.executors.executor import Executor
from tuner.models.files.input_shapes import InputShapes
from tuner.models.files.input_values import InputValues
from tuner.models.graph import Graph
from tuner.models.importer import import_model
from tuner.models.reference.accuracy import greatest_error
from tuner.models.reference.amplification import allowed_error
from tuner.models.tuning.numerics import NumericsPolicy
from tuner.runtime.loader import ALIGNMENT
from tuner.runtime.portfolio import Portfolio
from tuner.scratch import temporary_folder
from tuner.target.roofline import bandwidth_at
from tuner.target.target import Target
from tuner.workers.jobs.model_library import Model, largest_error, right_outputs
from tuner.workload.expression import Tensor
from tuner.workload.rows import ListedExtent, Rows

MOST_LISTED = 8
MOST_MEMBERS = 4  # each is a whole model to tune
GREATEST = 1024  # batch size


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The batch size as a range: an extent that the file's inputs name."""

    name: str
    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low < self.high <= GREATEST:
            raise UsageError(
                f"--shapes {self.name}={self.low}..{self.high} is no range of batches within "
                f"1..{GREATEST}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Values of an extent that the file's inputs name."""

    name: str
    extents: tuple[int, ...]  # ascending

    def __post_init__(self) -> None:
        spelt = f"--shapes {self.name}={'|'.join(map(str, self.extents))}"
        if not 2 <= len(self.extents) <= MOST_LISTED or min(self.extents) < 1:
            raise UsageError(
                f"{spelt} lists {len(self.extents)} extents; 2 to {MOST_LISTED} of at least 1 are "
                f"taken, each is a whole model to tune"
            )
        if list(self.extents) != sorted(set(self.extents)):
            raise UsageError(f"{spelt} lists an extent twice or out of order; write it ascending")

    @property
    def low(self) -> int:
        return self.extents[0]


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model for each extent worth one, ascending; the last is the greatest."""

    batch: Batch | Listed
    rows: Rows
    members: Mapping[int, Model]


def family_of(
    content: bytes,
    shapes: InputShapes,
    batch: Batch,
    target: Target,
    values: InputValues | None = None,
) -> Family:
    """The family of a model file.

    The file is read for both ends of the range. The members are chosen by the machine's
    limits, and the file is read for each of them. `values` are given values of inputs
    that do not have the batch. Raises ModelRefused for a file that is no model, and
    UsageError where not all outputs have the batch as first extent.
    """
    graphs = {
        end: import_model(content, {**shapes, batch.name: end}, values)
        for end in (batch.low, batch.high)
    }
    rows = _rows(graphs[batch.low], graphs[batch.high], batch)
    low_s, high_s = (_expected_s(graphs[end], target) for end in (batch.low, batch.high))
    row_bytes = _row_bytes(graphs[batch.high], rows)
    chosen = choose_extents(
        batch.low,
        batch.high,
        interpolated(batch.low, batch.high, low_s, high_s),
        lambda count: copy_s(row_bytes, count),
        MOST_MEMBERS,
    )
    members = {}
    for extent in chosen:
        given = {**shapes, batch.name: extent}
        graph = graphs[extent] if extent in graphs else import_model(content, given, values)
        members[extent] = Model(content=content, shapes=given, graph=graph, values=values or {})
    return Family(batch=batch, rows=rows, members=members)


def listed_family(
    content: bytes, shapes: InputShapes, listed: Listed, values: InputValues | None = None
) -> Family:
    """The family of a model file with a member for each listed extent.

    Raises as `family_of` does, and UsageError for a model whose arguments have other
    numbers of dimensions for other extents.
    """
    members = {}
    for extent in listed.extents:
        given = {**shapes, listed.name: extent}
        graph = import_model(content, given, values)
        members[extent] = Model(content=content, shapes=given, graph=graph, values=values or {})
    return Family(batch=listed, rows=_listed_rows(listed, members), members=members)


def _listed_rows(listed: Listed, members: Mapping[int, Model]) -> Rows:
    entries = tuple(
        ListedExtent(extent=extent, shapes=tuple(t.shape for t in _tensors(model.graph)))
        for extent, model in members.items()
    )
    columns = list(zip(*(entry.shapes for entry in entries), strict=True))
    if any(len({len(shape) for shape in column}) > 1 for column in columns):
        raise UsageError(
            f"the model's arguments have other numbers of dimensions for other values of "
            f"{listed.name}; export it for one at a time"
        )
    inputs = len(next(iter(members.values())).graph.inputs)
    shown = [
        (place, dimension)
        for place, column in enumerate(columns[:inputs])
        for dimension, extents in enumerate(zip(*column, strict=True))
        if extents == listed.extents
    ]
    if not shown:
        raise UsageError(
            f"no input of the model has {listed.name} as an extent; give one number instead of "
            f"several"
        )
    return Rows(
        name=listed.name,
        low=listed.extents[0],
        high=listed.extents[-1],
        ranged=tuple(place for place, column in enumerate(columns) if len(set(column)) > 1),
        listed=entries,
        shown=shown[0],
    )


def family_kernel(
    family: Family,
    members: Mapping[int, ExportKernel],
    symbol: str,
    executor: Executor,
    policy: NumericsPolicy,
) -> ExportKernel:
    """One function for all extents of the family, from the members' checked kernels.

    Raises ModelWrong where one has wrong outputs.
    """
    rows, extents = family.rows, tuple(members)
    greatest = members[rows.high]
    plan, whole_s = ((), greatest.median_s) if rows.listed else _plan(family, members)
    made = replace(
        greatest,
        workload_key=sha256(
            " ".join(members[extent].workload_key for extent in extents).encode()
        ).hexdigest(),
        symbol=symbol,
        portfolio=Portfolio(rows=rows, extents=extents, kernels=tuple(members.values()), plan=plan),
        median_s=whole_s,
        ci95_s=(whole_s, whole_s),
        isa=tuple(sorted({feature for kernel in members.values() for feature in kernel.isa})),
    )
    with temporary_folder("tuner-scratch-model-") as folder:
        path = folder / "family.so"
        path.write_bytes(executor.link(made))
        tolerance = policy.tolerance(family.members[rows.high].graph)
        worst = [
            _error(family, made, path, batch, executor, tolerance)
            for batch in _judged(extents, rows)
        ]
    return replace(
        made, max_rel_error=max(*worst, *(kernel.max_rel_error for kernel in members.values()))
    )


def _plan(family: Family, members: Mapping[int, ExportKernel]) -> tuple[tuple[int, ...], float]:
    """The member that comes next for each number of rows left, and the seconds of all rows."""
    rows = family.rows
    row_bytes = _row_bytes(family.members[rows.high].graph, rows)
    # Rows that are not aligned: then every block but the first is copied.
    unaligned = any(size % ALIGNMENT for size in row_bytes)

    def call_s(extent: int) -> float:
        return members[extent].median_s + (copy_s(row_bytes, extent) if unaligned else 0.0)

    plan = plan_rows(
        [(extent, call_s(extent)) for extent in members],
        rows.high,
        lambda count: copy_s(row_bytes, count),
    )
    return plan.first, plan.seconds[rows.high]


def _judged(extents: Sequence[int], rows: Rows) -> list[int]:
    """Batches without a member: padded ones, and ones that take several blocks. Of listed
    extents, those with members."""
    if rows.listed:
        return list(extents)
    others = [batch for batch in range(rows.low, rows.high + 1) if batch not in extents]
    return sorted({others[0], others[len(others) // 2], others[-1]}) if others else [rows.high]


def _error(
    family: Family,
    made: ExportKernel,
    path: Path,
    batch: int,
    executor: Executor,
    tolerance: float,
) -> float:
    """The largest error of the function for one batch, on random inputs."""
    model = next(iter(family.members.values()))
    rng = np.random.default_rng(batch)
    inputs = []
    for place, argument in enumerate(made.inputs):
        shape = _shape_for(family.rows, batch, place, argument.shape)
        if argument.stated is not None:
            inputs.append(argument.stated)
        elif argument.dtype.startswith("float"):
            inputs.append(rng.standard_normal(shape).astype(argument.dtype))
        else:
            inputs.append(rng.integers(0, 2, shape).astype(argument.dtype))
    shapes = {**model.shapes, family.batch.name: batch}
    graph = family.members.get(batch, family.members[family.rows.high]).graph
    right = right_outputs(model, graph, inputs, shapes)
    checked = executor.run(path, str(made.symbol), inputs)
    symbol = f"{made.symbol} with {family.batch.name}={batch}"
    tolerance = allowed_error(graph, inputs, tolerance, greatest_error(checked.outputs, right))
    return largest_error(symbol, checked.outputs, right, tolerance)


def _shape_for(rows: Rows, extent: int, place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an argument in a call with this extent; `shape` goes with the greatest."""
    if rows.listed:
        return next(listed.shapes[place] for listed in rows.listed if listed.extent == extent)
    return (extent, *shape[1:]) if place in rows.ranged else shape


def _tensors(graph: Graph) -> tuple[Tensor, ...]:
    """Inputs, then outputs."""
    return (*graph.inputs, *(graph.tensor(name) for name in graph.outputs))


def _rows(small: Graph, large: Graph, batch: Batch) -> Rows:
    """The tensors whose first extent is the batch, by the model at both ends of the range.

    Raises UsageError for a model that does not have it there.
    """
    ranged = []
    for place, (smaller, larger) in enumerate(zip(_tensors(small), _tensors(large), strict=True)):
        if smaller.shape == larger.shape and place < len(small.inputs):
            continue
        if (smaller.shape[:1], larger.shape[:1], smaller.shape[1:]) != (
            (batch.low,),
            (batch.high,),
            larger.shape[1:],
        ):
            raise UsageError(
                f"{large.labels[place]!r} has shape {list(larger.shape)} for "
                f"{batch.name}={batch.high}; in a model for a range of "
                "batches every output, and what input has a batch, has it first; give one "
                "number instead of a range"
            )
        ranged.append(place)
    if not any(place < len(small.inputs) for place in ranged):
        raise UsageError(
            f"no input of the model has {batch.name} as its first extent; give one number "
            f"instead of a range"
        )
    return Rows(name=batch.name, low=batch.low, high=batch.high, ranged=tuple(ranged))


def _row_bytes(graph: Graph, rows: Rows) -> tuple[int, ...]:
    """Bytes of one row of each tensor that has rows; `graph` is of the greatest batch."""
    tensors = _tensors(graph)
    return tuple(tensors[place].nbytes // rows.high for place in rows.ranged)


def _expected_s(graph: Graph, target: Target) -> float:
    """Seconds of a call by the measured limits: computing, then moving all kernels' tensors."""
    limits = target.limits
    if limits is None:
        raise UsageError(
            f"the limits of {target.name} have not been measured; tune one workload on it first"
        )
    flops = sum(node.flops for node in graph.nodes)
    moved = sum(node.nbytes for node in graph.nodes)
    return flops / limits.fma_flops + moved / bandwidth_at(limits, moved / len(graph.nodes))
