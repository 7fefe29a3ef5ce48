"""Siblings: products of the same input with constants, which one kernel may compute.

Queries, keys and values are three products of one tensor, as are convolutions of 1x1 in the
branches of a module. Where they differ in nothing but their constants, and in how many of
their results there are, these can be laid one behind the other along that axis. One product
then has the results of all, also one behind the other, and whoever reads one of them reads a
slice. Nothing is copied: siblings whose readers cannot read in place are left alone.

Found are forms, not operators. Activations and biases that all have are part of the product;
those with different ones are no siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from tuner.errors import WorkloadError
from tuner.models.graph import Graph
from tuner.models.nodes import Node, calls, reads_of
from tuner.models.passes.joints import is_map
from tuner.models.passes.substitutions import Joined, Substitution, between
from tuner.spaces.by_target import CATALOGUES
from tuner.target.roofline import Work, bandwidth_at, least_seconds
from tuner.target.target import Target
from tuner.workload.affine import Domain, linear
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Tensor,
    Unary,
    Var,
    children,
    reads,
    rewrite,
    walk,
)
from tuner.workload.renaming import rename_reads

# Of their least time, what siblings must spare of reading the same tensors again. Products of
# hundreds of columns take as long apart.
WORTH = 0.02
# Of the model's least time, what equal groups of siblings must take together to be compared:
# they gain a part of their own time, and each kernel that is tuned for them takes seconds.
SHARE = 0.05


def siblings_of(
    graph: Graph, target: Target, others: Sequence[Substitution] = ()
) -> tuple[Substitution, ...]:
    """The siblings of a graph that may be faster as one product, with those who read them.

    No node is in two substitutions, `others` included. None for a target whose models do not
    race inside, or whose limits were not measured.
    """
    if target.limits is None or not CATALOGUES[target.kind].fuses:
        return ()
    used = {id(node) for each in others for node in (*each.parts, *each.between)}
    alike: dict[str, list[Substitution]] = {}
    for group in _Search(graph, used).groups():
        alike.setdefault(group.workloads(graph)[0].key, []).append(group)

    whole_s = sum(count * _least_s(node, target) for node, count in calls(graph.nodes))
    return tuple(
        group
        for groups in alike.values()
        if len(groups) * _least_s(groups[0].nodes[0], target) >= SHARE * whole_s
        and _is_worth(groups[0], target)
        for group in groups
    )


def _least_s(node: Expression, target: Target) -> float:
    return least_seconds(Work(flops=node.flops, nbytes=node.nbytes), target)


def _is_worth(group: Substitution, target: Target) -> bool:
    """Whether reading once what each sibling reads takes a part of the time less that can be
    noticed."""
    joint, *readers = group.nodes
    limits, again = target.limits, len(group.parts) - len(readers) - 1
    assert limits is not None
    common = [t.nbytes for t in joint.inputs if t.name not in group.constants]
    spared_s = sum(again * nbytes / bandwidth_at(limits, nbytes) for nbytes in common)
    return spared_s >= WORTH * _least_s(joint, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sibling:
    """A node that can be joined with others along an axis of its result."""

    node: Expression
    # The dimension that goes along with the axis, of stages and of constants.
    dimensions: Mapping[str, int]

    @property
    def result(self) -> Tensor:
        return self.node.tensor(self.node.outputs[0])

    @property
    def dimension(self) -> int:
        """Of the result."""
        return self.dimensions[self.result.name]

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """Those that are joined, in order."""
        return tuple(tensor for tensor in self.node.inputs if tensor.name in self.dimensions)

    @property
    def form(self) -> Hashable:
        """What siblings share: all but the names of joined constants, and the extents."""
        names = {stage.name: f"s{number}" for number, stage in enumerate(self.node.stages)}
        names |= {tensor.name: f"c{number}" for number, tensor in enumerate(self.constants)}
        stages = tuple(
            replace(
                self.with_extent(stage, 0),
                name=names[stage.name],
                body=rename_reads(stage.body, names),
            )
            for stage in self.node.stages
        )
        shapes = tuple(
            (tensor.dtype, self.dimensions[tensor.name], self._rest(tensor))
            for tensor in self.constants
        )
        return stages, shapes

    def _rest(self, tensor: Tensor) -> tuple[int, ...]:
        """The extents of a constant but the one along which it is joined, of which the
        elements for one of the axis count."""
        place = self.dimensions[tensor.name]
        each = tensor.shape[place] // self.result.shape[self.dimension]
        return (*tensor.shape[:place], each, *tensor.shape[place + 1 :])

    def with_extent(self, stage: Stage, extent: int) -> Stage:
        """The stage with another extent of the axis of the result; 0 leaves all of them out."""
        place = self.dimensions.get(stage.name)
        if place is None:
            return stage
        times = stage.axes[place].extent // self.result.shape[self.dimension]
        axes = list(stage.axes)
        axes[place] = replace(axes[place], extent=times * extent)
        return replace(stage, axes=tuple(axes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """Where a tensor lies inside of another."""

    whole: Tensor
    shape: tuple[int, ...]  # of the tensor
    dimension: int
    start: int  # along that dimension

    def read(self, read: Read, shape: Sequence[int], domain: Domain) -> Read | None:
        """The read of the tensor, which has this shape to its reader, as one of the whole;
        None where that may be another element."""
        indices = _reshaped(read.indices, shape, self.shape)
        if indices is None or (read.pad is not None and self.shape != tuple(shape)):
            return None
        place = indices[self.dimension]
        # What lies beside the slice is another's result and no padding.
        if read.pad is not None and not domain.range_of(place).is_index_of(
            self.shape[self.dimension]
        ):
            return None
        if self.start:
            indices[self.dimension] = Binary("add", place, Const(self.start, "int64"))
        return Read(self.whole.name, tuple(indices), read.pad)


class _Search:
    """The siblings of one graph."""

    def __init__(self, graph: Graph, used: set[int]) -> None:
        self.graph, self.used = graph, used  # by `id`, the nodes of other substitutions
        self.names: dict[str, list[str]] = {}  # of each tensor, with those of its aliases
        for name, root in graph.aliases.items():
            self.names.setdefault(root, [root]).append(name)
        self.readers: dict[str, list[Node]] = {}  # by the tensor that has the bytes
        for node in graph.nodes:
            for root in {graph.root(name) for name in reads_of(node)}:
                self.readers.setdefault(root, []).append(node)
        self.shown = {graph.root(name) for name in graph.outputs}

    def groups(self) -> Iterator[Substitution]:
        """In the graph's order."""
        alike: dict[Hashable, list[_Sibling]] = {}
        for node in self.graph.nodes:
            sibling = self._sibling(node)
            if sibling is not None:
                alike.setdefault(sibling.form, []).append(sibling)
        for siblings in alike.values():
            if len(siblings) > 1:
                siblings = [each for each in siblings if self._is_free(each)]
            group = self._group(siblings) if len(siblings) > 1 else None
            if group is not None:
                self.used |= {id(node) for node in (*group.parts, *group.between)}
                yield group

    def _sibling(self, node: Node) -> _Sibling | None:
        if not isinstance(node, Expression) or len(node.outputs) != 1 or is_map(node):
            return None
        (result,) = node.outputs
        if result in self.shown or not self.readers.get(result):
            return None
        for axis in node.stage(result).axes:
            dimensions = _along(node, axis, self._is_constant)
            if dimensions is not None:
                return _Sibling(node=node, dimensions=dimensions)
        return None

    def _is_constant(self, name: str) -> bool:
        return self.graph.root(name) in self.graph.constants

    def _is_free(self, sibling: _Sibling) -> bool:
        """Whether it and those who read it are in no substitution yet, and all who read it could
        do so inside of a larger tensor."""
        places, readers = self._slices([sibling]), self.readers[sibling.result.name]
        return self.used.isdisjoint(map(id, (sibling.node, *readers))) and all(
            isinstance(reader, Expression) and _reading(reader, places) is not None
            for reader in readers
        )

    def _slices(self, siblings: Sequence[_Sibling]) -> dict[str, _Slice]:
        """Where the results lie in the joint one, by all their names."""
        first = siblings[0]
        extents = [sibling.result.shape[first.dimension] for sibling in siblings]
        shape = list(first.result.shape)
        shape[first.dimension] = sum(extents)
        whole = replace(first.result, name=f"{first.result.name}_joint", shape=tuple(shape))
        return {
            name: _Slice(
                whole=whole,
                shape=sibling.result.shape,
                dimension=first.dimension,
                start=start,
            )
            for sibling, start in zip(siblings, accumulate(extents, initial=0), strict=False)
            for name in self.names.get(sibling.result.name, [sibling.result.name])
        }

    def _group(self, siblings: Sequence[_Sibling]) -> Substitution | None:
        """The siblings as one node, with all who read them; None beyond the limits of a
        workload, and where control flow lies between."""
        places = self._slices(siblings)
        parts = [sibling.node for sibling in siblings]
        mine = {id(reader) for each in siblings for reader in self.readers[each.result.name]}
        consumers = [
            node for node in self.graph.nodes if id(node) in mine and isinstance(node, Expression)
        ]
        reading = [_reading(consumer, places) for consumer in consumers]
        joint, constants = _joint(siblings, places[siblings[0].result.name].whole)
        stay = between(self.graph, (*parts, *consumers))
        kept = [node for node in stay if isinstance(node, Expression)]
        if len(kept) < len(stay) or not self.used.isdisjoint(map(id, kept)):
            return None
        inside = {id(node) for node in (*parts, *consumers)}
        group = Substitution(
            nodes=(joint, *(node for node in reading if node is not None)),
            parts=tuple(
                node
                for node in self.graph.nodes
                if id(node) in inside and isinstance(node, Expression)
            ),
            between=tuple(kept),
            constants=constants,
        )
        try:
            group.workloads(self.graph)
        except WorkloadError:
            return None
        return group


def _along(
    node: Expression, axis: Axis, is_constant: Callable[[str], bool]
) -> dict[str, int] | None:
    """The dimension of each tensor that an axis of the result goes along: of stages and of
    constants. None where there is any other, and where there is no constant or no sum."""
    stages = {stage.name: stage for stage in node.stages}
    shapes = node.shapes
    (result,) = node.outputs
    dimensions = {result: stages[result].axes.index(axis)}
    waiting, sums = [result], False  # whether any of the stages sums
    while waiting:
        stage = stages[waiting.pop()]
        own = stage.axes[dimensions[stage.name]]
        if _is_counted(stage.body, own.name):
            return None
        sums |= stage.reducer == "sum"
        for read in reads(stage.body):
            place = _walked(read, own, shapes[read.tensor])
            if place is None:
                continue
            is_stage = read.tensor in stages
            if place < 0 or not (is_stage or is_constant(read.tensor)):
                return None
            if read.tensor not in dimensions and is_stage:
                waiting.append(read.tensor)
            if dimensions.setdefault(read.tensor, place) != place:
                return None
    whole = all(
        stage.name in dimensions
        and _walked(read, stage.axes[dimensions[stage.name]], shapes[read.tensor]) is not None
        for stage in node.stages
        for read in reads(stage.body)
        if read.tensor in dimensions
    )
    return dimensions if sums and whole and dimensions.keys() - stages.keys() else None


def _is_counted(body: Scalar, axis: str) -> bool:
    """Whether an iterator stands anywhere but in an index."""
    waiting = [body]
    while waiting:
        node = waiting.pop()
        if node == Var(axis):
            return True
        waiting += () if isinstance(node, Read) else children(node)
    return False


def _walked(read: Read, axis: Axis, shape: Sequence[int]) -> int | None:
    """The dimension that an axis divides: it goes through it from end to end, by the same
    number of elements in each step. -1 where it moves in any other way, None where it does
    not move."""
    moving = [
        place
        for place, index in enumerate(read.indices)
        if any(node == Var(axis.name) for node in walk(index))
    ]
    if not moving:
        return None
    form = linear(read.indices[moving[0]])
    if len(moving) > 1 or form is None or read.pad is not None:
        return -1
    # The rest is less than a step then, since no index leaves the tensor.
    step = form.coefficient(axis.name)
    return moving[0] if step > 0 and step * axis.extent == shape[moving[0]] else -1


def _reshaped(
    indices: Sequence[Scalar], shape: Sequence[int], other: Sequence[int]
) -> list[Scalar] | None:
    """The indices of the same element in another shape that joins dimensions; None where it
    divides some."""
    if tuple(shape) == tuple(other):
        return list(indices)
    left = [pair for pair in zip(indices, shape, strict=True) if pair[1] != 1]
    made: list[Scalar] = []
    for extent in other:
        place: Scalar = Const(0, "int64")
        size = 1
        while size < extent and left:
            index, own = left.pop(0)
            higher = Binary("mul", place, Const(own, "int64"))
            place = index if size == 1 else Binary("add", higher, index)
            size *= own
        if size != extent:
            return None
        made.append(place)
    return made


def _joint(siblings: Sequence[_Sibling], whole: Tensor) -> tuple[Expression, dict[str, Joined]]:
    """The siblings as one node with this result, and the constants that it reads."""
    first = siblings[0]
    extent = whole.shape[first.dimension]
    constants = {
        f"{whole.name}_{tensor.name}": Joined(
            parts=tuple(each.constants[number] for each in siblings),
            dimension=first.dimensions[tensor.name],
        )
        for number, tensor in enumerate(first.constants)
    }
    names = {t.name: name for t, name in zip(first.constants, constants, strict=True)}
    inputs = tuple(
        constants[names[tensor.name]].tensor(names[tensor.name]) if tensor.name in names else tensor
        for tensor in first.node.inputs
    )
    names[first.result.name] = whole.name
    stages = tuple(
        replace(
            first.with_extent(stage, extent),
            name=names.get(stage.name, stage.name),
            body=rename_reads(stage.body, names),
        )
        for stage in first.node.stages
    )
    return replace(first.node, inputs=inputs, stages=stages, outputs=(whole.name,)), constants


def _reading(node: Expression, places: Mapping[str, _Slice]) -> Expression | None:
    """The node with reads of some tensors inside of others; None where it cannot."""
    shapes = node.shapes
    dtypes = {name: tensor.dtype for name, tensor in node.tensors.items()}
    failed = False

    def within(domain: Domain) -> Callable[[Scalar], Scalar | None]:
        def change(part: Scalar) -> Scalar | None:
            nonlocal failed
            match part:
                case Select(cond=cond, then=then, other=other):
                    return Select(
                        rewrite(cond, change),
                        rewrite(then, within(domain.under(cond))),
                        rewrite(other, within(domain.under(Unary("not", cond)))),
                    )
                case Read(tensor=name) if name in places:
                    inner = replace(
                        part, indices=tuple(rewrite(index, change) for index in part.indices)
                    )
                    made = places[name].read(inner, shapes[name], domain)
                    failed |= made is None
                    return inner if made is None else made
            return None

        return change

    stages = tuple(
        replace(
            stage,
            body=rewrite(stage.body, within(Domain(extents=stage.extents, dtypes=dtypes))),
        )
        for stage in node.stages
    )
    tensors = [places[t.name].whole if t.name in places else t for t in node.inputs]
    inputs = tuple({tensor.name: tensor for tensor in tensors}.values())
    return None if failed else replace(node, inputs=inputs, stages=stages)
