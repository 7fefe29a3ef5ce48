"""Which integers an index can be: exact for affine indices, never too few with floor
division, modulo and integer tensors.

Used to infer ranges of iterators and to refuse whatever could read outside a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tuner.errors import WorkloadError
from tuner.workload.expression import (
    INTEGER_RANGES,
    Binary,
    Cast,
    Const,
    DType,
    Expression,
    Read,
    Scalar,
    Select,
    Tensor,
    Unary,
    Var,
    children,
    reads,
    rewrite,
    walk,
)

Interval = tuple[int, int]  # both ends included
_INTEGER: Mapping[str, Interval] = {**INTEGER_RANGES, "bool": (0, 1)}
# Padded affine indices stay below it in size, so that narrow index arithmetic cannot wrap.
_INDEX_LIMIT = 2**31


def linear(node: Scalar) -> tuple[dict[Scalar, int], int]:
    """The node as a sum of coefficient times atom plus a constant; an atom is an
    iterator or anything that is not affine."""
    match node:
        case Const(value=value):
            return {}, int(value)
        case Cast(dtype="int64", arg=arg) if not isinstance(arg, Read):
            return linear(arg) if _plain(arg) else ({node: 1}, 0)
        case Unary(op="neg", arg=arg):
            return _scaled(*linear(arg), -1)
        case Binary(op="add", lhs=lhs, rhs=rhs):
            return _added(linear(lhs), linear(rhs))
        case Binary(op="sub", lhs=lhs, rhs=rhs):
            return _added(linear(lhs), _scaled(*linear(rhs), -1))
        case (
            Binary(op="mul", lhs=lhs, rhs=Const(value=value))
            | Binary(op="mul", lhs=Const(value=value), rhs=lhs)
        ):
            return _scaled(*linear(lhs), int(value))
        case _:
            return {node: 1}, 0


def _plain(node: Scalar) -> bool:
    """Only iterators and constants in 64 bits: nothing that could wrap before a cast."""
    return all(isinstance(part, Var | Const | Binary) for part in walk(node))


def _scaled(
    terms: Mapping[Scalar, int], constant: int, factor: int
) -> tuple[dict[Scalar, int], int]:
    return {
        atom: coefficient * factor for atom, coefficient in terms.items() if factor
    }, constant * factor


def _added(
    left: tuple[dict[Scalar, int], int], right: tuple[dict[Scalar, int], int]
) -> tuple[dict[Scalar, int], int]:
    terms = dict(left[0])
    for atom, coefficient in right[0].items():
        terms[atom] = terms.get(atom, 0) + coefficient
    return {atom: coefficient for atom, coefficient in terms.items() if coefficient}, left[
        1
    ] + right[1]


def interval(node: Scalar, extents: Mapping[str, int], dtypes: Mapping[str, DType]) -> Interval:
    """Least and greatest value of an integer scalar for 0 <= iterator < extent and any
    content of integer tensors."""
    terms, constant = linear(node)
    low = high = constant
    for atom, coefficient in terms.items():
        ends = [coefficient * end for end in _atom(atom, extents, dtypes)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _atom(node: Scalar, extents: Mapping[str, int], dtypes: Mapping[str, DType]) -> Interval:
    match node:
        case Var(name=name):
            return 0, extents[name] - 1
        case Read(tensor=tensor):
            return _INTEGER.get(dtypes[tensor], _INTEGER["int64"])
        case Cast(dtype=dtype, arg=arg):
            inner, limit = interval(arg, extents, dtypes), _INTEGER.get(dtype, _INTEGER["int64"])
            return inner if limit[0] <= inner[0] and inner[1] <= limit[1] else limit
        case Binary(op="floordiv", lhs=lhs, rhs=Const(value=divisor)) if divisor > 0:
            low, high = interval(lhs, extents, dtypes)
            return low // int(divisor), high // int(divisor)
        case Binary(op="floormod", lhs=lhs, rhs=Const(value=divisor)) if divisor > 0:
            low, high = interval(lhs, extents, dtypes)
            whole = low // int(divisor) != high // int(divisor)
            return (0, int(divisor) - 1) if whole else (low % int(divisor), high % int(divisor))
        case Binary(op="min" | "max", lhs=lhs, rhs=rhs):
            (a, b), (c, d) = interval(lhs, extents, dtypes), interval(rhs, extents, dtypes)
            return (min(a, c), min(b, d)) if node.op == "min" else (max(a, c), max(b, d))
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            products = [
                x * y
                for x in interval(lhs, extents, dtypes)
                for y in interval(rhs, extents, dtypes)
            ]
            return min(products), max(products)
        case Select(then=then, other=other):
            (a, b), (c, d) = interval(then, extents, dtypes), interval(other, extents, dtypes)
            return min(a, c), max(b, d)
        case _:
            return _INTEGER["int64"]


def infer(
    unknown: Iterable[str],
    fixed: Mapping[str, int],
    all_reads: Iterable[Read],
    tensors: Mapping[str, Tensor],
) -> tuple[dict[str, int], tuple[str, Read, Read] | None]:
    """Extents of iterators from the tensors they index.

    An iterator that alone is an index of a tensor runs over that dimension; two such
    dimensions must agree, else the second result names the iterator and the two reads.
    Any other runs as far as the unpadded affine indices it stands in allow. Padded
    reads say something only about iterators that no unpadded read knows.
    """
    extents, iterators, everything = dict(fixed), list(unknown), list(all_reads)
    unpadded = [read for read in everything if read.pad is None]
    for group in (unpadded, [read for read in everything if read.pad is not None]):
        settled, first = set(extents), dict[str, Read]()
        for read in group:
            for index, extent in zip(read.indices, tensors[read.tensor].shape, strict=True):
                if not isinstance(index, Var) or index.name in settled:
                    continue
                if extents.setdefault(index.name, extent) != extent:
                    return extents, (index.name, first[index.name], read)
                first.setdefault(index.name, read)
    affine = [
        (*linear(index), extent)
        for read in dict.fromkeys(unpadded)
        for index, extent in zip(read.indices, tensors[read.tensor].shape, strict=True)
        if not isinstance(index, Var | Const)
    ]
    while True:
        bound = {
            name: room
            for name in iterators
            if name not in extents
            if (room := _room(name, extents, affine)) is not None
        }
        if not bound:
            return extents, None
        extents |= bound


def _room(
    name: str, extents: Mapping[str, int], affine: Iterable[tuple[dict[Scalar, int], int, int]]
) -> int | None:
    """The largest extent for `name` that keeps indices `c * name + known` (c > 0)
    inside; None where no index says."""
    own, rooms = Var(name), []
    for terms, constant, extent in affine:
        coefficient = terms.get(own, 0)
        others = [
            (atom.name if isinstance(atom, Var) else "", factor)
            for atom, factor in terms.items()
            if atom != own
        ]
        if coefficient <= 0 or any(other not in extents for other, _ in others):
            continue
        rest = constant + sum(max(0, factor * (extents[other] - 1)) for other, factor in others)
        rooms.append((extent - 1 - rest) // coefficient + 1)
    return min(rooms, default=None)


def _reach(node: Scalar, extents: Mapping[str, int], dtypes: Mapping[str, DType]) -> int:
    """A bound on the size of every number met while the index is computed, tensors' own
    contents left aside."""
    match node:
        case Var(name=name):
            return extents[name]
        case Const(value=value):
            return abs(int(value))
        case Read(tensor=tensor):
            return _INTEGER.get(dtypes[tensor], _INTEGER["int64"])[1]
        case Binary(op="mul", lhs=lhs, rhs=rhs):
            return max(1, _reach(lhs, extents, dtypes)) * max(1, _reach(rhs, extents, dtypes))
        case Binary(op="add" | "sub", lhs=lhs, rhs=rhs):
            return _reach(lhs, extents, dtypes) + _reach(rhs, extents, dtypes)
        case _:
            return max((_reach(child, extents, dtypes) for child in children(node)), default=0)


def complaint(read: Read, extents: Mapping[str, int], tensors: Mapping[str, Tensor]) -> str | None:
    """Why a read is refused, or None: an unpadded index outside its dimension, or index
    arithmetic too wide for its integers."""
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    tensor = tensors[read.tensor]
    for dimension, (index, extent) in enumerate(zip(read.indices, tensor.shape, strict=True)):
        low, high = interval(index, extents, dtypes)
        gathers = any(True for _ in reads(index))
        limit = 2**63 if gathers else _INDEX_LIMIT
        if _reach(index, extents, dtypes) >= limit:
            return (
                f"index {dimension} of {tensor.name} is computed from numbers of {limit} or "
                f"more; use smaller factors"
            )
        if read.pad is None and (low < 0 or high >= extent):
            way = (
                f"clamp it, clamp(…, 0, {extent - 1})"
                if gathers
                else "state a smaller range with 'for'"
            )
            return (
                f"index {dimension} of {tensor.name} runs from {low} to {high}, its extent is "
                f"{extent}; {way}, "
                f"or say what lies outside: {tensor.name}[…] else 0"
            )
    return None


def without_idle_pads(
    node: Scalar, extents: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> Scalar:
    """The same scalar with the padding dropped from reads that can never leave their tensor."""
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}

    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read) or node.pad is None:
            return None
        inside = all(
            low >= 0 and high < extent
            for (low, high), extent in zip(
                (interval(index, extents, dtypes) for index in node.indices),
                tensors[node.tensor].shape,
                strict=True,
            )
        )
        return Read(
            node.tensor,
            tuple(rewrite(index, change) for index in node.indices),
            None if inside else node.pad,
        )

    return rewrite(node, change)


def wrapping(body: Scalar, extents: Mapping[str, int]) -> str | None:
    """Why arithmetic on iterators is refused, or None: kernels do it in 32 bits, and
    narrower integers may not hold them."""
    if not _counts(body):
        return next((why for child in children(body) if (why := wrapping(child, extents))), None)
    if _reach(body, extents, {}) >= _INDEX_LIMIT:
        return (
            f"numbers of {_INDEX_LIMIT} or more are computed from iterators; use smaller "
            f"factors, or convert to f32 first"
        )
    for node in walk(body):
        if isinstance(node, Cast):
            (low, high), (least, most) = interval(node.arg, extents, {}), _INTEGER[node.dtype]
            if low < least or high > most:
                return (
                    f"{node.dtype} holds {least} to {most}, but an iterator's value is {low} "
                    f"to {high}; use a wider one"
                )
    return None


def _counts(node: Scalar) -> bool:
    """Whether it is integer arithmetic on iterators and numbers alone."""
    inside = list(walk(node))
    return any(isinstance(part, Var) for part in inside) and all(
        isinstance(part, Var | Binary | Unary)
        or (isinstance(part, Const | Cast) and part.dtype in _INTEGER)
        for part in inside
    )


def check_bounds(expression: Expression) -> None:
    """Raises `WorkloadError` for the first read of an expression (from wherever it
    came) that could leave its tensor, or arithmetic on iterators that could wrap."""
    tensors = {tensor.name: tensor for tensor in expression.inputs}
    for stage in expression.stages:
        extents = stage.extents
        for read in reads(stage.body):
            why = complaint(read, extents, tensors)
            if why:
                raise WorkloadError(f"stage {stage.name}: {why}")
        if why := wrapping(stage.body, extents):
            raise WorkloadError(f"stage {stage.name}: {why}")
        tensors[stage.name] = stage.tensor
