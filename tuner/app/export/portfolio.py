"""Portfolios: which members of a family to tune, and their kernels as one function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from tuner.db import kernels, workloads
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.export.errors import ExportRefused
from tuner.export.examples import expected_outputs
from tuner.export.kernel import ExportKernel
from tuner.export.portfolio import (
    MOST_ROWS,
    RowPlan,
    choose_extents,
    copy_s,
    interpolated,
    plan_rows,
    worthwhile,
)
from tuner.measure.cache import WARM
from tuner.runtime.loader import ALIGNMENT
from tuner.runtime.portfolio import Portfolio as KernelPortfolio
from tuner.target.roofline import bandwidth_at, relative_rate
from tuner.target.target import Target
from tuner.workers.jobs.kernel_descriptions import Widen, describe
from tuner.workload.expression import Expression, Tensor
from tuner.workload.rows import Rows, member, rows_of
from tuner.workload.spec import Portfolio
from tuner.workload.workload import Workload

PAGE = 500
BLOCKS_S = 2e-7  # of each call: two lists of blocks are searched


def members_to_tune(portfolio: Portfolio, target: Target, threads: int) -> tuple[Workload, ...]:
    """The few workloads of the family whose kernels will serve all of it.

    Chosen by the machine's measured limits. Raises WorkloadError and UsageError for a
    family that one function cannot serve, and for a machine without measured limits.
    """
    rows = rows_checked(portfolio)
    low_s, high_s = (
        _expected_s(member(portfolio, extent), target, threads) for extent in (rows.low, rows.high)
    )
    row_bytes = _row_bytes(portfolio, rows)
    extents = choose_extents(
        rows.low,
        rows.high,
        interpolated(rows.low, rows.high, low_s, high_s),
        lambda count: _padding_s(row_bytes, count),
        traffic=portfolio.traffic,
    )
    return tuple(member(portfolio, extent) for extent in extents)


def portfolio_kernel(
    database: Database,
    portfolio: Portfolio,
    target: Target,
    threads: int,
    artifacts: ArtifactStore,
    widen: Widen | None = None,
) -> ExportKernel:
    """One function for the whole family, made of the promoted kernels of its members.

    With `widen` the members get variants for lesser CPUs. Raises UsageError where no
    member has a kernel, ExportRefused for kernels that pack constants.
    """
    rows = rows_checked(portfolio)
    promoted = _family(database, portfolio, rows, target, threads)
    if not promoted:
        raise UsageError(
            f"no kernel of {spec_of(portfolio)} is in {database.url} for {threads} thread(s); "
            f"tuner tune makes some"
        )
    row_bytes = _row_bytes(portfolio, rows)

    def padding_s(count: int) -> float:
        return _padding_s(row_bytes, count)

    times = {extent: kernel.median_s for extent, kernel in promoted.items()}
    extents = worthwhile(times, rows.low, rows.high, padding_s, traffic=portfolio.traffic)
    plan = plan_rows([(extent, times[extent]) for extent in extents], rows.high, padding_s)
    with database.read() as session:
        described = tuple(
            describe(session, promoted[extent], artifacts, widen) for extent in extents
        )
    for kernel in described:
        if kernel.prepack is not None:
            raise ExportRefused(
                f"{spec_of(portfolio)}: kernels that pack constants cannot be in a portfolio; "
                f"leave out const="
            )
    combined = _combined(portfolio, rows, extents, described, plan)
    expression = member(portfolio, rows.high).expression
    return replace(combined, expected=expected_outputs(expression, combined))


def _combined(
    portfolio: Portfolio,
    rows: Rows,
    extents: tuple[int, ...],
    described: tuple[ExportKernel, ...],
    plan: RowPlan,
) -> ExportKernel:
    """The members' kernels as one kernel, with the arguments of the greatest member."""
    greatest = member(portfolio, rows.high)
    shapes = {tensor.name: tensor.shape for tensor in _tensors(greatest.expression)}
    whole_s = plan.seconds[rows.high]
    return replace(
        described[-1],
        workload_key=portfolio_key(portfolio),
        params={**greatest.params, rows.name: f"{rows.low}..{rows.high}"},
        arguments=tuple(
            replace(argument, shape=shapes[argument.name]) for argument in described[-1].arguments
        ),
        portfolio=KernelPortfolio(rows=rows, extents=extents, kernels=described, plan=plan.first),
        median_s=whole_s,
        ci95_s=(whole_s, whole_s),
        verified=all(kernel.verified for kernel in described),
        max_rel_error=max(kernel.max_rel_error for kernel in described),
        isa=tuple(sorted({feature for kernel in described for feature in kernel.isa})),
        provenance={
            "job": None,
            "trial": None,
            "trace": None,
            "versions": described[-1].provenance.get("versions"),
        },
    )


def spec_of(portfolio: Portfolio) -> str:
    """The family as a spec, with its range."""
    ((name, (low, high)),) = portfolio.ranges.items()
    parts = [f"{key}={value}" for key, value in portfolio.params.items()]
    return f"{portfolio.op}:{','.join([f'{name}={low}..{high}', *parts])}"


def portfolio_key(portfolio: Portfolio) -> str:
    """The family's key: SHA-256 of the keys of its least and its greatest member.

    These two hold everything that the members have in common.
    """
    ((_, ends),) = portfolio.ranges.items()
    return sha256(" ".join(member(portfolio, extent).key for extent in ends).encode()).hexdigest()


def rows_checked(portfolio: Portfolio) -> Rows:
    """The rows of a family.

    Raises WorkloadError and UsageError for a family that one function cannot serve.
    """
    rows = rows_of(portfolio)
    if rows.high > MOST_ROWS:
        raise UsageError(
            f"{rows.name}={rows.low}..{rows.high} is too long a range; its greatest may be "
            f"{MOST_ROWS}"
        )
    for size in _row_bytes(portfolio, rows):
        if size % ALIGNMENT != 0:
            raise UsageError(
                f"{spec_of(portfolio)}: a row has {size} bytes; blocks begin where a row does, "
                f"so rows must be multiples of "
                f"{ALIGNMENT} bytes, as 16 float32 are"
            )
    return rows


def _tensors(expression: Expression) -> tuple[Tensor, ...]:
    """Inputs, then outputs."""
    return (*expression.inputs, *(expression.tensor(name) for name in expression.outputs))


def _row_bytes(portfolio: Portfolio, rows: Rows) -> tuple[int, ...]:
    """Bytes of one row of each tensor that has rows."""
    tensors = _tensors(member(portfolio, rows.high).expression)
    return tuple(tensors[place].nbytes // rows.high for place in rows.ranged)


def _padding_s(row_bytes: tuple[int, ...], count: int) -> float:
    """Seconds of a call on so many padded rows, besides the kernel."""
    return BLOCKS_S + copy_s(row_bytes, count)


def _expected_s(workload: Workload, target: Target, threads: int) -> float:
    """Seconds of a kernel by the measured limits: computing, then moving all tensors.

    The two are added because each block reads again what has no rows, and that makes the
    difference between large and small blocks.
    """
    limits, expression = target.limits, workload.expression
    if limits is None:
        raise UsageError(
            f"the limits of {target.name} have not been measured, which the choice of extents "
            f"takes; tune single extents instead of a range"
        )
    nbytes = sum(tensor.nbytes for tensor in _tensors(expression))
    rate = limits.fma_flops * relative_rate(expression.inputs[0].dtype, target) * threads
    return (
        expression.flops / rate
        + nbytes / (bandwidth_at(limits, nbytes / threads) * threads)
        + BLOCKS_S
    )


def _family(
    database: Database, portfolio: Portfolio, rows: Rows, target: Target, threads: int
) -> dict[int, Kernel]:
    """The promoted kernels of the family's members, by number of rows."""
    by_extent: dict[int, Kernel] = {}
    cursor: str | None = None
    greatest = member(portfolio, rows.high)
    with database.read() as session:
        while True:
            page = kernels.list_page(
                session,
                target=target.key,
                op=portfolio.op,
                cache=WARM,
                cursor=cursor,
                limit=PAGE,
            )
            stored = workloads.get_many(session, sorted({kernel.workload for kernel in page.items}))
            for kernel in page.items:
                extent = _extent(stored[kernel.workload].document, greatest, rows)
                if extent is not None and kernel.threads == threads:
                    by_extent.setdefault(extent, kernel)
            cursor = page.next
            if cursor is None:
                return by_extent


def _extent(document: Mapping[str, Any], greatest: Workload, rows: Rows) -> int | None:
    """The number of rows of a stored workload; None if it is no member of the family."""
    params = dict(document.get("params") or {})
    extent = params.pop(rows.name, None)
    same = params == {name: value for name, value in greatest.params.items() if name != rows.name}
    same &= (
        document.get("numerics") == greatest.numerics
        and tuple(document.get("constants") or ()) == greatest.constants
    )
    return extent if same and isinstance(extent, int) and rows.low <= extent <= rows.high else None
