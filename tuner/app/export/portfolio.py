"""Portfolios: which members of a family to tune, and the stored kernels of a family as
one function for export."""

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
from tuner.export.portfolio import MOST_ROWS, choose_extents, plan_rows, worthwhile
from tuner.runtime.loader import ALIGNMENT
from tuner.runtime.portfolio import Portfolio as KernelPortfolio
from tuner.target.roofline import bandwidth_at, relative_rate
from tuner.target.target import Target
from tuner.workers.jobs.kernel_descriptions import Widen, describe
from tuner.workload.rows import Rows, member, rows_of
from tuner.workload.spec import Portfolio
from tuner.workload.workload import Workload

PAGE = 500
COPY_BYTES_PER_S = (
    8e9  # of padding, read and written; a careful figure, because padding is to be the exception
)
COPY_S = 2e-7  # of padding nothing: two lists of blocks are searched


def members_to_tune(portfolio: Portfolio, target: Target, threads: int) -> tuple[Workload, ...]:
    """The few workloads of the family whose kernels serve all of it, by the machine's
    measured limits.

    Raises WorkloadError and UsageError for a family that one function cannot serve.
    """
    rows = rows_checked(portfolio)
    expected = {
        extent: _expected_s(member(portfolio, extent), target, threads)
        for extent in (rows.low, rows.high)
    }
    slope = (expected[rows.high] - expected[rows.low]) / (rows.high - rows.low)

    def ideal_s(extent: int) -> float:
        return expected[rows.low] + slope * (extent - rows.low)

    row_bytes = _row_bytes(portfolio, rows)
    extents = choose_extents(
        rows.low,
        rows.high,
        ideal_s,
        lambda count: _copy_s(row_bytes, count),
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
    """One function for the whole family, of the promoted kernels of its members. Raises
    UsageError where there is none.

    With `widen` the members get variants for other CPUs.
    """
    rows = rows_checked(portfolio)
    promoted = _family(database, portfolio, rows, target, threads)
    if not promoted:
        raise UsageError(
            f"no kernel of {spec_of(portfolio)} is in {database.url} for {threads} thread(s); "
            f"tuner tune makes some"
        )
    row_bytes = _row_bytes(portfolio, rows)

    def copy_s(count: int) -> float:
        return _copy_s(row_bytes, count)

    times = {extent: kernel.median_s for extent, kernel in promoted.items()}
    extents = worthwhile(times, rows.low, rows.high, copy_s, traffic=portfolio.traffic)
    plan = plan_rows([(extent, promoted[extent].median_s) for extent in extents], rows.high, copy_s)
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
    greatest = member(portfolio, rows.high)
    expression = greatest.expression
    shapes = {
        tensor.name: tensor.shape
        for tensor in (
            *expression.inputs,
            *(expression.tensor(name) for name in expression.outputs),
        )
    }
    whole = plan.seconds[rows.high]
    made = replace(
        described[-1],
        workload_key=portfolio_key(portfolio),
        params={**greatest.params, rows.name: f"{rows.low}..{rows.high}"},
        arguments=tuple(
            replace(argument, shape=shapes[argument.name]) for argument in described[-1].arguments
        ),
        portfolio=KernelPortfolio(rows=rows, extents=extents, kernels=described, plan=plan.first),
        median_s=whole,
        ci95_s=(whole, whole),
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
    return replace(made, expected=expected_outputs(expression, made))


def spec_of(portfolio: Portfolio) -> str:
    ((name, (low, high)),) = portfolio.ranges.items()
    parts = [f"{key}={value}" for key, value in portfolio.params.items()]
    return f"{portfolio.op}:{','.join([f'{name}={low}..{high}', *parts])}"


def portfolio_key(portfolio: Portfolio) -> str:
    """SHA-256 of the keys of the least and the greatest member: they hold everything
    that the family has in common."""
    ((_, ends),) = portfolio.ranges.items()
    return sha256(" ".join(member(portfolio, extent).key for extent in ends).encode()).hexdigest()


def rows_checked(portfolio: Portfolio) -> Rows:
    """The family's rows. Raises WorkloadError and UsageError for one that one function
    cannot serve."""
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


def _row_bytes(portfolio: Portfolio, rows: Rows) -> tuple[int, ...]:
    expression = member(portfolio, rows.high).expression
    tensors = [*expression.inputs, *(expression.tensor(name) for name in expression.outputs)]
    return tuple(tensors[place].nbytes // rows.high for place in rows.ranged)


def _copy_s(row_bytes: tuple[int, ...], count: int) -> float:
    return COPY_S + 2 * count * sum(row_bytes) / COPY_BYTES_PER_S


def _expected_s(workload: Workload, target: Target, threads: int) -> float:
    """Computing and moving one after the other: blocks read again what has no rows, and
    that is what tells them apart."""
    limits, expression = target.limits, workload.expression
    assert limits is not None, "the machine's limits are measured before anything is tuned"
    nbytes = sum(
        tensor.nbytes
        for tensor in (
            *expression.inputs,
            *(expression.tensor(name) for name in expression.outputs),
        )
    )
    rate = limits.fma_flops * relative_rate(expression.inputs[0].dtype, target) * threads
    return (
        expression.flops / rate
        + nbytes / (bandwidth_at(limits, nbytes / threads) * threads)
        + COPY_S
    )


def _family(
    database: Database, portfolio: Portfolio, rows: Rows, target: Target, threads: int
) -> dict[int, Kernel]:
    """The promoted kernels of members, by their number of rows."""
    by_extent: dict[int, Kernel] = {}
    cursor: str | None = None
    greatest = member(portfolio, rows.high)
    with database.read() as session:
        while True:
            page = kernels.list_page(
                session, target=target.key, op=portfolio.op, cursor=cursor, limit=PAGE
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
    """The number of rows of a stored workload that is a member of the family."""
    params = dict(document.get("params") or {})
    extent = params.pop(rows.name, None)
    same = params == {name: value for name, value in greatest.params.items() if name != rows.name}
    same &= (
        document.get("numerics") == greatest.numerics
        and tuple(document.get("constants") or ()) == greatest.constants
    )
    return extent if same and isinstance(extent, int) and rows.low <= extent <= rows.high else None
