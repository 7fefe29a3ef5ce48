"""Features of the loop nest: one width for all operators, finite, relative to what is
typical, the same however batched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.spaces import shared_space
from tests.support.targets import ZEN5
from tuner.cost_model.cpu.calibration import estimate, units_of
from tuner.cost_model.cpu.cycles import ROUND_COSTS, TERM_NAMES, cycles
from tuner.cost_model.cpu.nests import tables
from tuner.cost_model.cpu.reuse import FOLLOWED_RUNS
from tuner.cost_model.cpu.terms.memory import PAGE_CROSSING_CYCLES
from tuner.cost_model.cpu.work import nest_work
from tuner.cost_model.features import ESTIMATE, REFERENCE, TERMS, WIDTH, featurizer
from tuner.cost_model.model import Features
from tuner.spaces.core.space import Points, Value
from tuner.spaces.core.target_space import TargetSpace
from tuner.target.target import Bandwidth, Limits, Target

SPECS = (
    "matmul:M=61,N=67,K=71",
    "dense:M=11,N=45,K=51,bias=true,act=gelu",
    "conv2d:N=1,H=9,W=11,CI=5,CO=19,KH=3,KW=3,pad=1",
    "softmax:M=9,N=53",
    "transpose:M=61,N=67",
    "attention:B=1,H=2,S=19,D=16",
)


WIDE = replace(ZEN5, vector_bytes=64, vector_registers=32)


def described(
    spec: str, count: int = 300, target: Target | None = None
) -> tuple[TargetSpace[Any], Points, Features]:
    space = shared_space(spec, target or ZEN5)
    points = space.space.sample(np.random.default_rng(1), count)
    return space, points, featurizer(space)(points)


@pytest.mark.parametrize("spec", SPECS)
def test_rows_have_one_width_and_only_numbers(spec: str) -> None:
    space, points, rows = described(spec)
    assert rows.shape == (len(points), WIDTH + TERMS) and rows.dtype == np.float32
    assert np.isfinite(rows).all()
    assert np.array_equal(featurizer(space)(points[7:19]), rows[7:19]), (
        "a batch does not change its rows"
    )
    typical = featurizer(space)(space.space.sample(np.random.default_rng(0), REFERENCE))
    assert np.abs(typical[:, :WIDTH].mean(axis=0)).max() < 1e-3, "relative to what is typical"


@pytest.mark.parametrize("spec", SPECS)
def test_a_nest_is_described_in_single_precision_throughout(spec: str) -> None:
    """Half of it in double would take longer and change nothing."""
    space = shared_space(spec, ZEN5)
    points = space.space.sample(np.random.default_rng(1), 100)
    for number, name in enumerate(space.sketches):
        for table in tables(space, name):
            work = nest_work(table, points[points[:, 0] == number], space.target)
            counted = {
                f"{type(part).__name__}.{key}": value
                for part in (work, work.nest, work.memory, work.operands, work.copies)
                for key, value in vars(part).items()
            }
            counted["cycles"] = cycles(table, work, space.target)
            arrays = [
                (key, array)
                for key, value in counted.items()
                for array in (value if isinstance(value, tuple) else (value,))
            ]
            assert not {
                key
                for key, array in arrays
                if isinstance(array, np.ndarray) and array.dtype == np.float64
            }


def test_scalar_calls_are_estimated_slower_than_vectors_of_polynomials() -> None:
    space, points, rows = described("softmax:M=64,N=512")
    (column,) = (
        number for number, knob in enumerate(space.space.knobs) if knob.name.endswith("mathematics")
    )
    libm = np.array(
        [space.space.knobs[column].values[value] == "libm" for value in points[:, column]]
    )
    assert np.median(rows[libm, ESTIMATE]) > np.median(rows[~libm, ESTIMATE]) + 1.0


def test_few_accumulators_are_estimated_slower_than_enough() -> None:
    """Of a row's sum; tiles of a product always have enough."""
    space, points, rows = described("reduce_sum:M=64,N=512", 2000, ZEN5)
    (column,) = (
        number for number, knob in enumerate(space.space.knobs) if knob.name == "Y.rows.register"
    )
    registers = np.array([space.space.knobs[column].values[value] for value in points[:, column]])
    accumulators = registers[:, 0] * registers[:, 1] // (ZEN5.vector_bytes // 4)
    few = rows[accumulators <= 4, ESTIMATE]
    enough = rows[(accumulators >= 8) & (accumulators <= 20), ESTIMATE]
    assert len(few) > 100 and len(enough) > 100
    assert np.median(few) > np.median(enough)


@pytest.mark.parametrize("spec", SPECS)
def test_the_estimate_is_the_sum_of_its_terms(spec: str) -> None:
    _, _, rows = described(spec)
    units = units_of(rows, TERMS)
    assert (units >= 0).all() and (units.sum(axis=1) > 0).all()
    logs = estimate(units, ROUND_COSTS) / np.log(2)
    assert np.allclose(logs - logs.mean(), rows[:, ESTIMATE] - rows[:, ESTIMATE].mean(), atol=1e-3)


def test_loads_hide_behind_a_unit_that_is_half_as_fast() -> None:
    """Of a tile of 8 by 1 vectors each step has nine loads and eight multiply-adds."""
    terms = {}
    for cpu in ("znver4", "znver5"):
        space, points, rows = described(
            "matmul:M=128,N=128,K=128", 4000, replace(WIDE, tvm={"kind": "llvm", "mcpu": cpu})
        )
        (column,) = (
            number
            for number, knob in enumerate(space.space.knobs)
            if knob.name.endswith("tile_j.register")
        )
        narrow = [space.space.knobs[column].values[value] == (8, 16) for value in points[:, column]]
        units = units_of(rows[narrow], TERMS)
        terms[cpu] = {
            name: units[:, TERM_NAMES.index(name)]
            for name in ("arithmetic", "operand_loads", "port_pressure", "accumulator_latency")
        }
    assert np.allclose(terms["znver4"]["arithmetic"], 2 * terms["znver5"]["arithmetic"], rtol=1e-3)
    assert not terms["znver4"]["operand_loads"].any() and not terms["znver4"]["port_pressure"].any()
    assert (terms["znver5"]["operand_loads"] > 0).all() and (
        terms["znver5"]["port_pressure"] > 0
    ).all()
    assert (
        not terms["znver4"]["accumulator_latency"].any()
        and not terms["znver5"]["accumulator_latency"].any()
    )


def test_sums_of_a_block_of_one_tile_stay_in_registers_between_blocks_of_its_reduction() -> None:
    space, points, rows = described("matmul:M=128,N=128,K=128", 2000, WIDE)
    (table,) = tables(space, next(iter(space.sketches)))
    points, rows = points[points[:, 0] == 0], rows[points[:, 0] == 0]
    nest = table.decode(points)
    single = nest.extent[table.spatial + 1 : 2 * table.spatial + 1].prod(axis=0) == 1
    divided = nest.extent[table.spatial] > 1
    vectors = nest.span[: table.spatial].prod(axis=0) // nest.lanes
    few = vectors <= space.target.vector_registers // 3
    partial = units_of(rows, TERMS)[:, TERM_NAMES.index("partial_sums")]
    assert (single & divided & few).any() and (partial[single & divided & few] == 0).all()
    assert (~single & divided).any() and (partial[~single & divided] > 0).all()
    assert (partial[~divided] == 0).all()


@pytest.mark.parametrize(("threads", "alike"), [(1, True), (2, False)])
def test_a_copy_that_depends_on_no_loop_is_described_as_made_first(
    threads: int, alike: bool
) -> None:
    """It compiles to the same code, unless threads share the copy that is made first."""
    space = shared_space("matmul:M=24,N=32,K=16", ZEN5, threads)
    config = dict(space.space.config(np.zeros(len(space.space.knobs), np.int32)))

    def row(**knobs: Value) -> Features:
        changed = {f"C.tile_j.{what}": value for what, value in knobs.items()}
        assert changed.keys() <= config.keys()
        return featurizer(space)(space.space.point(config | changed)[None])

    whole = {"block_i": 24, "block_j": 32}
    same = np.array_equal(row(copy1_B="pack", **whole), row(copy1_B="pack_root", **whole))
    assert same == alike
    assert not np.array_equal(
        row(copy1_B="pack", block_i=24, block_j=0), row(copy1_B="pack_root", block_i=24, block_j=0)
    )


def test_a_copy_within_a_tile_of_a_map_is_described_as_made_there() -> None:
    space = shared_space("transpose:M=32,N=32", WIDE)
    _, points, rows = described("transpose:M=32,N=32", 300, WIDE)
    turned = np.array(["turn" in str(space.space.config(point)["sketch"]) for point in points])
    units = units_of(rows[turned], TERMS)
    assert turned.any() and not units[:, TERM_NAMES.index("packed_at_root")].any()


@pytest.mark.parametrize(("window", "rows"), [(1, 14), (3, 28)])
def test_of_rows_that_a_stride_leaves_out_nothing_is_brought_in(window: int, rows: int) -> None:
    """A pixel of sixteen channels is a line; windows of three overlap, of one they
    visit every other row and column."""
    spec = f"conv2d:N=1,H=28,W=28,CI=16,CO=32,KH={window},KW={window},stride=2,pad={window // 2}"
    space = shared_space(spec, WIDE)
    (table,) = tables(space, next(iter(space.sketches)))
    (image,) = (
        number for number, operand in enumerate(table.operands) if operand.read.tensor == "X"
    )
    points = space.space.sample(np.random.default_rng(1), 100)
    nest = nest_work(table, points[points[:, 0] == 0], WIDE)
    in_place = ~nest.nest.packed[image]
    assert in_place.any() and (nest.memory.footprint[image, 0, in_place] == rows * rows * 64).all()
    assert window == 1 or (nest.memory.footprint[image, -2, in_place] < rows * rows * 64).any()


@pytest.mark.parametrize(
    ("spec", "elements"), [("softmax:M=64,N=512", 64 * 512), ("reduce_sum:M=64,N=512", 64)]
)
def test_of_rows_their_elements_are_written_or_one_of_each(spec: str, elements: int) -> None:
    space = shared_space(spec, WIDE)
    (table,) = (
        nest_table
        for combination in space.sketches
        if "Y:rows" in combination
        for nest_table in tables(space, combination)
    )
    work = nest_work(table, space.space.sample(np.random.default_rng(1), 50), WIDE)
    assert (work.written[work.overlap == 1] == elements).all() and (work.overlap == 1).any()
    assert (work.memory.footprint[-1, 0] == max(elements * 4, 64)).all()
    rows, vectors = (
        work.nest.span[0],
        work.nest.span[1] / work.lanes,
    )  # each sums up vectors of its own
    assert (work.accumulators == rows * vectors).all() and (work.accumulators > 8).any()


def test_rows_a_page_apart_push_what_is_read_and_what_is_written_out_of_the_same_sets() -> None:
    """A first-level cache of eight ways holds what is read and written of four rows of
    4 KiB at one place, not of five."""
    target = replace(WIDE, l1d_bytes=32 << 10)
    for columns, most in ((1024, 4), (1000, 100)):
        space, points, rows = described(f"layer_norm:M=64,N={columns}", 300, target)
        (column,) = (
            number
            for number, knob in enumerate(space.space.knobs)
            if knob.name.endswith("register")
        )
        tiles = np.array(
            [int(str(space.space.knobs[column].values[value][0])) for value in points[:, column]]
        )
        aliased = units_of(rows, TERMS)[:, TERM_NAMES.index("set_conflicts")]
        assert (aliased[tiles <= most] == 0).all() and (aliased[tiles > most] > 0).all()
        assert (tiles > 4).any() and (tiles <= 4).any()


def test_rows_that_come_in_by_turns_count_where_they_are_more_than_a_prefetcher_follows() -> None:
    """Of a product of a row a block of the reduction visits as many rows of the matrix
    by turns as it is deep; without blocks of columns, all."""
    target = replace(WIDE, l2_bytes=1 << 20)
    space = shared_space("matmul:M=1,N=2048,K=2048", target)
    config = dict(space.space.config(np.zeros(len(space.space.knobs), np.int32)))
    (depth,) = (knob for knob in space.space.knobs if knob.name.endswith("depth"))

    def interleaved(block: int) -> dict[int, float]:
        chosen = [config | {"C.tile_j.block_j": block, depth.name: value} for value in depth.values]
        units = units_of(
            featurizer(space)(np.array([space.space.point(config) for config in chosen])), TERMS
        )
        return dict(
            zip(
                map(int, map(str, depth.values)),
                units[:, TERM_NAMES.index("interleaved_runs")].tolist(),
                strict=True,
            )
        )

    assert {rows for rows, units in interleaved(2048).items() if not units} == {4, 8, FOLLOWED_RUNS}
    assert all(interleaved(0).values())


def restarts(bytes_per_cycle: float | None, **knobs: Value) -> float:
    """Of a product of 1024, by knobs of its operands and blocks, on a machine that
    reads so fast beyond its second cache."""
    target = replace(
        ZEN5,
        l1d_bytes=48 << 10,
        l2_bytes=1 << 20,
        vector_bytes=32,
        vector_registers=16,
        limits=None,
    )
    if bytes_per_cycle is not None:
        clock = 3e9
        entries = [(1 << 19, 1.0), (1 << 21, bytes_per_cycle * clock), (1 << 25, 1.0)]
        bandwidth = tuple(
            Bandwidth(working_set_bytes=size, read=rate, write=rate, copy=rate)
            for size, rate in entries
        )
        limits = Limits(fma_flops=clock * 32, fma_flops_best=clock * 32, bandwidth=bandwidth)
        target = replace(target, limits=limits)
    space = shared_space("matmul:M=1024,N=1024,K=1024", target)
    config = dict(space.space.config(np.zeros(len(space.space.knobs), np.int32)))
    usual: dict[str, Value] = {"register": (6, 16), "block_i": 128, "block_j": 128, "depth": 128}
    chosen = usual | {"copy0_A": "none", "copy1_B": "pack_root"} | knobs
    config |= {name: chosen[what] for name in config if (what := name.rpartition(".")[2]) in chosen}
    rows = featurizer(space)(space.space.point(config)[None])
    return float(units_of(rows, TERMS)[0, TERM_NAMES.index("run_restarts")])


def test_short_runs_from_beyond_the_second_cache_are_waited_for_where_that_is_slow() -> None:
    assert restarts(None) == restarts(32.0) == restarts(16.0) == 0.0
    slow = restarts(8.0)
    rows, blocks_of_columns, blocks_of_reduction = 1024, 8, 8
    assert slow == pytest.approx(
        64 * rows * blocks_of_columns * blocks_of_reduction, rel=0.1
    )  # the left operand's
    assert restarts(4.0) == pytest.approx(3 * slow, rel=1e-3)
    assert restarts(8.0, depth=256) == pytest.approx(slow / 2, rel=0.01)
    assert restarts(8.0, copy0_A="pack_root") < slow / 50


def load_stalls(columns: int, copy: str, tile: tuple[int, int]) -> float:
    """Cycles that a product of 16 rows waits for the second cache, of each of its
    multiply-adds' own."""
    target = replace(
        WIDE, l1d_bytes=48 << 10, l2_bytes=1 << 20, tvm={"kind": "llvm", "mcpu": "znver5"}
    )
    space = shared_space(f"matmul:M=16,N={columns},K=512", target)
    config = dict(space.space.config(np.zeros(len(space.space.knobs), np.int32)))
    usual: dict[str, Value] = {
        "register": tile,
        "block_i": 16,
        "block_j": 128,
        "depth": 64,
        "copy0_A": "none",
        "copy1_B": copy,
    }
    config |= {name: usual[what] for name in config if (what := name.rpartition(".")[2]) in usual}
    units = units_of(featurizer(space)(space.space.point(config)[None]), TERMS)[0]
    return float(units[TERM_NAMES.index("load_stalls_l1")] / units[TERM_NAMES.index("arithmetic")])


def test_tiles_wait_for_rows_that_the_first_cache_cannot_keep() -> None:
    """Of rows a page apart each row of a tile of 32 columns is two lines from the
    second cache, four cycles, and a run of its own on another page; four rows of two
    vectors take four cycles, 14 rows 14."""
    assert (
        PAGE_CROSSING_CYCLES / 4
        < load_stalls(1024, "none", (4, 32))
        < PAGE_CROSSING_CYCLES / 4 + 0.5
    ), "and sums of the blocks of the reduction"
    assert load_stalls(1024, "none", (14, 32)) == 0.0
    assert load_stalls(1024, "pack_root", (4, 32)) == 0.0
