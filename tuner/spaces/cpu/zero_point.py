"""A factor of a sum of products moved by a constant, so that an instruction takes it,
and the sums that take it off again.

Of the sum of (a + c) * b over the reduction, c * b is the same for all rows of a: it is
summed once, beside the packed copy of b.
"""

from __future__ import annotations

from tuner.workload.expression import Binary, Const, Scalar, Var, reads, walk


def moved(body: Scalar, lane: str, offset: int) -> tuple[Scalar, Scalar]:
    """A product with the offset added to the factor that does not move with the
    iterator `lane`; what that adds to it."""
    assert isinstance(body, Binary) and body.op == "mul"
    factors = (body.lhs, body.rhs)
    shared, own = factors if lane in iterators(body.rhs) else factors[::-1]
    constant = Const(offset, "int32")
    return Binary("mul", Binary("add", shared, constant), own), Binary("mul", constant, own)


def iterators(node: Scalar) -> frozenset[str]:
    """Those that its reads move with."""
    return frozenset(
        one.name
        for read in reads(node)
        for index in read.indices
        for one in walk(index)
        if isinstance(one, Var)
    )
