"""The kernel benchmark's arithmetic: ratios, means, shares, what a machine allows, and
the log that a run goes on from."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from benchmarks.expressions.__main__ import faults
from benchmarks.expressions.programs import FLOPS, cases
from benchmarks.kernels.allowance import allowance
from benchmarks.kernels.contest import Case
from benchmarks.kernels.log import Log, run
from benchmarks.kernels.options import command_line
from benchmarks.kernels.report import (
    Row,
    from_line,
    geometric_mean,
    markdown,
    measurement,
    picture,
    significant,
    to_line,
)
from benchmarks.kernels.suite import SUITE, read_suite, suite_key
from benchmarks.measurement import Machine, from_text, to_text
from docs.generators.suites import SUITES
from tests.support.targets import ZEN5
from tuner.target.target import Bandwidth, Limits, Target
from tuner.workload.spec import parse_spec

ROW = Row(
    name="mm",
    spec="matmul:M=64,N=64,K=64",
    bound="compute",
    flops=200,
    threads=1,
    trials=64,
    tuned_s=10.0,
    peak_flops=1000.0,
    allowed_s=0.2,
    median_s={"kernel": 0.25, "numpy": 0.5, "torch": 0.4, "default": 4.0},
    ci95_s={"kernel": (0.2, 0.3)},
    ratios={"numpy": 2.0, "torch": 1.6, "metaschedule": 1.25, "default": 16.0},
    rounds={"numpy": (2.0, 2.0, 9.0)},
    metaschedule_trials=64,
    metaschedule_s=80.0,
    verified=True,
)


@pytest.fixture
def machine() -> Target:
    bandwidth = tuple(
        Bandwidth(working_set_bytes=size, read=200e9, write=50e9, copy=100e9)
        for size in (1 << 14, 1 << 28)
    )
    return replace(
        ZEN5,
        isa=("avx512f", "avx512vnni"),
        vector_bytes=64,
        cores=2,
        limits=Limits(fma_flops=256e9, fma_flops_best=260e9, bandwidth=bandwidth),
    )


def test_a_row_is_compared_with_the_fastest_library_and_its_own_peak() -> None:
    assert (ROW.library, ROW.ratio, ROW.over_metaschedule, ROW.wall_ratio) == (
        "torch",
        1.6,
        1.25,
        8.0,
    )
    assert ROW.share == pytest.approx(200 / 0.25 / 1000)
    assert replace(ROW, bound="memory").share == pytest.approx(0.2 / 0.25)
    assert replace(ROW, median_s={}, ratios={}).ratio is None


def test_a_line_of_the_log_gives_its_row_back() -> None:
    assert from_line(to_line(ROW)) == ROW


def test_the_table_tells_the_means_apart() -> None:
    rows = [
        ROW,
        replace(
            ROW, name="sum", bound="memory", ratios={"numpy": 6.4, "default": 0.9}, verified=False
        ),
    ]
    text = markdown(rows)
    assert (
        "all 3.20 of 2, compute-bound 1.60 of 1, memory-bound 6.40 of 1; smallest 1.60 (mm)" in text
    )
    assert "MetaSchedule's tuning time / ours, geometric mean: all 8.00" in text
    assert "Not verified: sum. Slower than the default schedule: sum." in text
    assert geometric_mean([None, 2.0, 8.0]) == pytest.approx(4.0) and geometric_mean([None]) is None
    assert picture(rows).count("<svg") == 1


def test_a_measurement_has_the_rows_and_their_means() -> None:
    rows = [
        replace(ROW, date="2026-11-20"),
        replace(ROW, name="sum", bound="memory", ratios={"numpy": 6.4}, date="2026-11-21"),
    ]
    machine = Machine(key="zen5", cpu="AMD EPYC", cores=2, target="znver5")
    document = measurement(
        rows, suite="kernels", machine=machine, commit=None, command="python -m benchmarks.kernels"
    )
    assert from_text(to_text(document)) == document
    workloads, means = document.tables
    assert document.date == "2026-11-21" and workloads.columns["kernel"] == "ms"
    first = dict(zip(workloads.columns, workloads.rows[0], strict=True))
    assert first["fastest library / kernel"] == Decimal("1.60") and first["library"] == "PyTorch"
    assert first["share"] == 80
    assert [row[:2] for row in means.rows] == [
        ["all 2", Decimal("3.20")],
        ["compute-bound (1)", Decimal("1.60")],
        ["memory-bound (1)", Decimal("6.40")],
        ["smallest", Decimal("1.60")],
    ]
    with pytest.raises(ValueError, match="nothing was measured"):
        measurement([], suite="kernels", machine=machine, commit=None, command="x")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.000"), (0.065861, "0.06586"), (4127.4, "4127"), (41274.0, "41270")],
)
def test_times_have_four_digits(value: float, text: str) -> None:
    assert str(significant(value)) == text


@pytest.mark.parametrize("name", ["suite", "wider", "unseen", "narrow", "prepacked", "fast"])
def test_every_suite_has_a_place_on_the_page(name: str) -> None:
    path = SUITE.with_name(f"{name}.json")
    for threads, metaschedule in ((1, 0), (2, 0), (1, 64)):
        assert suite_key(path, threads=threads, metaschedule=metaschedule) in SUITES


def test_the_command_is_kept_without_its_folder() -> None:
    given = ["-o", "results", "--trials", "64", "--report"]
    assert command_line("benchmarks.kernels", given) == ("python -m benchmarks.kernels --trials 64")


def test_an_expression_must_end_verified_and_no_slower_than_the_default() -> None:
    assert faults(ROW) == []
    assert "not verified" in faults(replace(ROW, verified=False))[0]
    assert "2.00 times as long" in faults(replace(ROW, ratios={"default": 0.5}))[0]
    assert "no kernel" in faults(replace(ROW, failure="crashed"))[0]


@pytest.mark.parametrize(
    ("spec", "seconds", "by_memory"),
    [
        # 2 * 512^3 operations at 256 GFLOP/s
        ("matmul:M=512,N=512,K=512", 2 * 512**3 / 256e9, False),
        # 16 MiB read at 200 GB/s and 4 KiB written, of which as much pairs up with reads as a copy
        (
            "reduce_sum:M=1024,N=4096,axis=1",
            (2 * 4096 / 100e9) + (16 * 1024**2 - 4096) / 200e9,
            True,
        ),
        # a copy of 1 MiB to 1 MiB
        ("transpose:M=512,N=512", 2 * 1024**2 / 100e9, True),
        # 8-bit products are summed four at a time: 1024 GOP/s
        ("matmul:M=512,N=512,K=512,dtype=int8", 2 * 512**3 / 1024e9, False),
        # as many products, and a sum for each element of the output: few beside them
        ("dense:M=512,N=512,K=512,bias=true", (512**3 + 512**2) / 16 / 8e9, False),
        # of a table of 2.9 GiB 1024 rows, less 403 elements for indices that are drawn twice
        (
            "embedding:N=1024,V=1000000,D=768",
            8 * 1024 * 768 / 100e9 + 4 * (1024 - 403) / 200e9,
            True,
        ),
        # a comparison an element read, 16 elements an instruction, 8e9 instructions a
        # second; its bytes take less
        (
            "max_pool2d:N=1,H=64,W=64,C=16,KH=9,KW=9,stride=1,pad=4",
            64 * 64 * 16 * 81 / 16 / 8e9,
            True,
        ),
        # an element: a comparison, a difference, an exponential, a sum, a product with
        # the row's reciprocal
        ("softmax:M=64,N=1024", 64 * 1024 * (1 + 1 + 18 + 1 + 1) / 16 / 8e9, True),
    ],
)
def test_what_a_machine_allows(machine: Target, spec: str, seconds: float, by_memory: bool) -> None:
    allowed = allowance(parse_spec(spec), machine, 1)
    assert allowed.seconds == pytest.approx(seconds, rel=1e-6)
    assert allowed.by_memory is by_memory
    assert allowance(parse_spec(spec), machine, 2).seconds == pytest.approx(seconds / 2, rel=1e-6)


def test_a_run_goes_on_from_its_log_and_the_later_line_counts(tmp_path: Path) -> None:
    log, ran = Log(tmp_path), list[str]()
    two = [Case(name=name, workload=parse_spec(ROW.spec)) for name in ("a", "b")]

    def contest(case: Case) -> Row:
        ran.append(case.name)
        return replace(ROW, name=case.name, tuned_s=float(len(ran)))

    run(two[:1], log, contest)
    run(two, log, contest)
    assert ran == ["a", "b"]
    run(two[:1], log, contest, again=True)
    assert ran == ["a", "b", "a"] and log.rows()["a"].tuned_s == 3.0
    assert log.report(["b", "a"]).index("b `matmul") < log.report(["b", "a"]).index("a `matmul")
    assert (tmp_path / "results.md").exists() and (tmp_path / "results.svg").exists()


@pytest.mark.parametrize("small", [True, False])
def test_random_programs_are_those_of_their_seed(small: bool) -> None:
    chosen = cases(6, 3, small=small)
    assert [case.workload.key for case in chosen] == [
        case.workload.key for case in cases(6, 3, small=small)
    ]
    assert len({case.workload.key for case in chosen}) == 6 and all(
        case.workload.expression.flops in FLOPS for case in chosen
    )
    assert {case.workload.key for case in cases(6, 4, small=small)}.isdisjoint(
        case.workload.key for case in chosen
    )


def test_rows_of_a_sparse_matrix_share_its_places(machine: Target) -> None:
    sparse = allowance(parse_spec("spmm:M=64,N=64,K=64,density=0.125"), machine, 1)
    dense = allowance(parse_spec("matmul:M=64,N=64,K=8"), machine, 1)
    assert sparse.instructions_s == pytest.approx(dense.instructions_s)


def test_the_sparse_suite_can_be_read() -> None:
    cases_of_suite = read_suite(SUITE.with_name("sparse.json"))
    assert len(cases_of_suite) == len({case.name for case in cases_of_suite}) >= 24
