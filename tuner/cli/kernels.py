"""`tuner best`: the promoted kernels in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import documents, units
from tuner.cli.documents import Names
from tuner.cli.invocation import Invocation
from tuner.cli.workloads import Notation, Shapes, read_workload

if TYPE_CHECKING:
    from db.kernels import Kernel

PAGE = 500


def best(
    context: typer.Context,
    spec: Annotated[str | None, typer.Argument(metavar="SPEC", help="only kernels of this workload")] = None,
    notation: Notation = None,
    shapes: Shapes = None,
) -> None:
    """Lists the promoted kernels in the database, or those of one workload; each with its time and its lead on the default."""
    from db import kernels as queries

    invocation = Invocation.of(context)
    asked = spec is not None or notation is not None or shapes is not None
    key = read_workload(spec, notation, shapes).key if asked else None
    found: list[Kernel] = []
    cursor: str | None = None
    with invocation.database() as database, database.read() as session:
        while True:
            page = queries.list_page(session, workload=key, cursor=cursor, limit=PAGE)
            found += page.items
            cursor = page.next
            if cursor is None:
                break
        names = Names.of(session, workloads=(one.workload for one in found), targets=(one.target for one in found))
    if invocation.output.as_json:
        invocation.output.items([documents.kernel(one, names) for one in found])
        return
    if not found:
        invocation.output.note("no kernel yet; tuner tune SPEC makes one")
    rows = [
        (
            one.id,
            names.spec(one.workload),
            str(one.threads),
            units.seconds(one.median_s),
            units.rate(one.gflops or None),
            units.percent(one.roofline_fraction),
            units.ratio(one.default_median_s / one.median_s if one.default_median_s else None),
            names.targets[one.target].name,
        )
        for one in found
    ]
    columns = ("kernel", "workload", "threads", "median", "speed", "of roofline", "default/kernel", "target")
    invocation.output.table(columns, rows, right=columns[2:7])
