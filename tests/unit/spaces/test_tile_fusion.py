"""Groups placed in the tiles of their readers: found by access maps, right, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.support.chains import random_chain
from tests.support.checked_kernels import check_programs
from tests.support.program_interpreter import run
from tests.support.programs import NARROW
from tests.support.targets import GOLDEN_COVE, host_target
from tuner.cost_model.cpu.nests import NestTable, tables
from tuner.cost_model.cpu.work import nest_work
from tuner.cost_model.features import ESTIMATE, featurizer
from tuner.cost_model.history import Prior
from tuner.errors import IllegalSchedule
from tuner.search.alternatives import alternatives
from tuner.search.domain import Domain
from tuner.spaces.by_target import cpu_space
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.catalogue import CPU_SKETCHES
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.cpu.fused_sketch import FusedSketch
from tuner.spaces.program.program import Program
from tuner.spaces.rewrite.groups import FusedGroup
from tuner.spaces.rewrite.padded_maps import with_padded_maps
from tuner.spaces.rewrite.regions import Region, Regions, regions_of
from tuner.spaces.rewrite.stages import plainly_named
from tuner.spaces.rewrite.tile_fusion import check_fusion, check_regions, fused_groups
from tuner.target.target import Target
from tuner.workload.affine import Affine
from tuner.workload.expression import Expression, Unary
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

MLP = """kernel mlp(X: f32[M, K], U: f32[J, K], b: f32[J], D: f32[N, J]) -> (O: f32[M, N]) {
  T[i, j] += X[i, k] * U[j, k]
  H[i, j] = max(T[i, j] + b[j], 0)
  O[i, n] += H[i, j] * D[n, j]
}"""
WIDE = """kernel wide(X: f32[M, K], U: f32[K, J], D: f32[J, N]) -> (O: f32[M, N]) {
  T[i, j] += X[i, k] * U[k, j]
  H[i, j] = max(T[i, j], 0)
  O[i, n] += H[i, j] * D[j, n]
}"""
GATED = """kernel gated(X: f32[M, K], G: f32[K, J], U: f32[K, J], D: f32[J, N]) -> (O: f32[M, N]) {
  S[i, j] += X[i, k] * G[k, j]
  T[i, j] += X[i, k] * U[k, j]
  H[i, j] = S[i, j] / (1 + exp(-S[i, j])) * T[i, j]
  O[i, n] += H[i, j] * D[j, n]
}"""
SEPARABLE = """kernel separable(X: f32[H, W, C], F: f32[3, 3, C], P: f32[C, D]) ->
    (O: f32[H, W, D]) {
  T[h, w, c] += (X[h + r - 1, w + s - 1, c] else 0) * F[r, s, c] for h in 0:H, w in 0:W
  O[h, w, d] += max(T[h, w, c], 0) * P[c, d]
}"""
INVERTED = """kernel inverted(X: f32[H, W, C], E: f32[C, D], F: f32[3, 3, D], P: f32[D, C]) ->
    (O: f32[(H + 1)//2, (W + 1)//2, C]) {
  U[h, w, d] += X[h, w, c] * E[c, d]
  V[h, w, d] = min(max(U[h, w, d], 0), 6)
  T[h, w, d] += (V[2*h + r - 1, 2*w + s - 1, d] else 0) * F[r, s, d]
      for h in 0:(H + 1)//2, w in 0:(W + 1)//2
  O[h, w, b] += max(T[h, w, d], 0) * P[d, b]
}"""
BLURS = """kernel blurs(X: f32[H, W], F: f32[3, 3]) -> (O: f32[H - 6, W - 6]) {
  T[h, w] += X[h + r, w + s] * F[r, s]
  A[h, w] += T[h + r, w + s] * F[r, s]
  O[h, w] += A[h + r, w + s] * F[r, s]
}"""
IMAGE = {"H": 9, "W": 8, "C": 5, "D": 6}
CASES: Mapping[str, Workload] = {
    "mlp": workload_from_notation(MLP, {"M": 11, "K": 5, "J": 32, "N": 9}),
    "gated": workload_from_notation(GATED, {"M": 6, "K": 3, "J": 32, "N": 5}),
    "separable": workload_from_notation(SEPARABLE, IMAGE),
    "inverted": workload_from_notation(INVERTED, IMAGE),
    "blurs": workload_from_notation(BLURS, {"H": 17, "W": 21}),
}


def prepared(workload: Workload) -> Expression:
    return with_padded_maps(CPU_SKETCHES.simplify(plainly_named(workload.expression)))


def group_of(workload: Workload) -> tuple[FusedGroup, Expression]:
    expression = prepared(workload)
    (group,) = fused_groups(expression)
    return group, expression


def drawn(space: TargetSpace[LoopNestFacts], count: int, seed: int) -> list[Program]:
    """Programs of random points of every combination that fuses."""
    rng = np.random.default_rng(seed)
    programs = []
    for number, name in enumerate(space.sketches):
        if ":fused" not in name:
            continue
        points = np.zeros((count, len(space.space.knobs)), np.int32)
        points[:, 0] = number
        for column in space.space.columns[number]:
            points[:, column] = rng.integers(space.space.cardinalities[column], size=count)
        programs += [space.program(space.space.config(point)) for point in points]
    return programs


def check_interpreted(workload: Workload, seed: int, target: Target = NARROW) -> int:
    """Fused programs step by step against the reference; how many there were."""
    inputs = make_inputs(workload.expression, seed=seed)
    want = evaluate(workload.expression, inputs)["O"]
    ordered = {tensor.name: inputs[tensor.name] for tensor in workload.expression.inputs}
    programs = drawn(cpu_space(workload, target, 1), 1, seed)
    for program in programs[:2]:
        (got,) = run(program, ordered)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=workload.notation)
    return len(programs)


# --- what is found


@pytest.mark.parametrize(
    ("case", "members"),
    [
        ("mlp", ["H", "O"]),
        ("gated", ["S", "T", "H", "O"]),
        ("separable", ["T", "O"]),
        ("inverted", ["Umap", "T", "O"]),
        ("blurs", ["T", "A", "O"]),
    ],
)
def test_chains_are_fused_whatever_they_compute(case: str, members: list[str]) -> None:
    group, expression = group_of(CASES[case])
    check_fusion(group, expression)
    assert sorted(member.name for member in group.members) == sorted(members)


@pytest.mark.parametrize(
    "spec",
    ["matmul:M=9,N=8,K=7", "softmax:M=9,N=53", "conv2d:N=1,H=8,W=8,CI=4,CO=4,KH=3,KW=3,pad=1"],
)
def test_a_single_reduction_stays_as_it_is(spec: str) -> None:
    assert not fused_groups(prepared(parse_spec(spec)))


def test_what_others_read_or_callers_get_is_not_placed() -> None:
    both = MLP.replace("(O: f32[M, N])", "(H: f32[M, J], O: f32[M, N])")
    extents = {"M": 11, "K": 5, "J": 32, "N": 9}
    assert not fused_groups(prepared(workload_from_notation(both, extents)))


def test_a_row_that_every_tile_needs_whole_is_not_placed() -> None:
    text = """kernel shared(X: f32[K, J], v: f32[K], D: f32[N, J]) -> (O: f32[N]) {
      T[j] += X[k, j] * v[k]
      O[n] += T[j] * D[n, j]
    }"""
    assert not fused_groups(prepared(workload_from_notation(text, {"K": 5, "J": 7, "N": 9})))


def test_two_reads_that_move_apart_are_not_placed() -> None:
    text = """kernel apart(X: f32[M, K]) -> (O: f32[M, M]) {
      T[i, j] += X[i, k] * X[j, k]
      O[i, j] += T[i, k] * T[j, k]
    }"""
    assert not fused_groups(prepared(workload_from_notation(text, {"M": 9, "K": 5})))


def test_tiles_overlap_as_much_as_windows_reach() -> None:
    group, expression = group_of(CASES["blurs"])
    tile = {"h": 4, "w": 8, "r": 3, "s": 3}
    regions = regions_of(group, expression.shapes, tile)
    assert regions is not None
    assert regions.members["A"].extents == (6, 10)
    assert regions.members["T"].extents == (8, 12)
    assert regions.members["T"].starts[0] == Affine.of_iterators({"_first_h": 1}, 0)


# --- what is refused


def altered(regions: Regions, member: str, region: Region) -> Regions:
    return replace(regions, members={**regions.members, member: region})


def wrong_regions(regions: Regions) -> dict[str, Regions]:
    region = regions.members["A"]
    moved = tuple(start + Affine({}, 1) for start in region.starts)
    still = tuple(Affine({}, 0) for _ in region.starts)
    less = tuple(extent - 1 for extent in region.extents)
    last = regions.members["O"]
    return {
        "too small": altered(regions, "A", replace(region, extents=less)),
        "too late": altered(regions, "A", replace(region, starts=moved)),
        "at one place": altered(regions, "A", replace(region, starts=still)),
        "part of the output": altered(
            regions, "O", replace(last, extents=tuple(extent - 1 for extent in last.extents))
        ),
        "output elsewhere": altered(
            regions,
            "O",
            replace(last, starts=tuple(start + Affine({}, 1) for start in last.starts)),
        ),
    }


TILE = {"h": 4, "w": 8, "r": 3, "s": 3}


def blur_regions() -> tuple[FusedGroup, Expression, Regions]:
    group, expression = group_of(CASES["blurs"])
    regions = regions_of(group, expression.shapes, TILE)
    assert regions is not None
    return group, expression, regions


@pytest.mark.parametrize("which", wrong_regions(blur_regions()[2]))
def test_regions_that_do_not_reach_are_refused(which: str) -> None:
    group, expression, regions = blur_regions()
    check_regions(group, regions, TILE, expression.shapes)
    with pytest.raises(IllegalSchedule, match="O cannot be fused: "):
        check_regions(group, wrong_regions(regions)[which], TILE, expression.shapes)


def test_a_window_beyond_what_is_computed_is_refused() -> None:
    group, expression = group_of(CASES["inverted"])
    tile = {"h": 2, "w": 2, "b": 5, "d": 6}
    regions = regions_of(group, expression.shapes, tile)
    assert regions is not None
    check_regions(group, regions, tile, expression.shapes)
    (window,) = regions.windows
    wider = tuple(extent + 1 for extent in window.region.extents)
    windows = (replace(window, region=replace(window.region, extents=wider)),)
    with pytest.raises(IllegalSchedule, match="leaves the region of Umap"):
        check_regions(group, replace(regions, windows=windows), tile, expression.shapes)
    with pytest.raises(IllegalSchedule, match="beyond the region it has"):
        narrow = tuple(extent - 1 for extent in window.region.extents)
        windows = (replace(window, region=replace(window.region, extents=narrow)),)
        check_regions(group, replace(regions, windows=windows), tile, expression.shapes)


def wrong_groups(group: FusedGroup) -> dict[str, FusedGroup]:
    first, *others = group.members
    negated = replace(first.anchor, body=Unary("neg", first.anchor.body))
    return {
        "computed later": FusedGroup(members=(*others[:-1], first, others[-1])),
        "differs from": FusedGroup(members=(replace(first, anchor=negated), *others)),
        "is no stage": FusedGroup(
            members=(replace(first, anchor=replace(first.anchor, name="no")), *others)
        ),
        "is read elsewhere": FusedGroup(members=group.members[:-1]),
    }


@pytest.mark.parametrize("which", wrong_groups(group_of(CASES["blurs"])[0]))
def test_a_wrong_fusion_is_refused(which: str) -> None:
    group, expression = group_of(CASES["blurs"])
    if which == "is read elsewhere":
        expression = replace(expression, outputs=(*expression.outputs, "T"))
        wrong = group
    else:
        wrong = wrong_groups(group)[which]
    with pytest.raises(IllegalSchedule, match=which):
        check_fusion(wrong, expression)


# --- what is computed


@pytest.mark.parametrize("case", ["mlp", "gated", "separable", "inverted"])
def test_programs_agree_step_by_step(case: str) -> None:
    assert check_interpreted(CASES[case], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("case", CASES)
def test_more_programs_agree_step_by_step(case: str, seed: int) -> None:
    assert check_interpreted(CASES[case], seed)


@pytest.mark.parametrize("seed", range(3))
def test_random_chains_agree_step_by_step(seed: int) -> None:
    check_interpreted(random_chain(np.random.default_rng(seed), 2).workload, seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_two_hundred_random_chains_agree_step_by_step(first: int) -> None:
    fused = 0
    for seed in range(first, first + 25):
        chain = random_chain(np.random.default_rng(seed), 2 + seed % 2)
        fused += check_interpreted(chain.workload, seed) > 0
    assert fused > 15


@pytest.mark.parametrize("case", ["mlp", "inverted"])
def test_kernels_compute_the_program(case: str) -> None:
    space = cpu_space(CASES[case], host_target(), 1)
    check_programs(CASES[case], drawn(space, 1, seed=2)[:1])


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_kernels_of_every_kind_compute_the_program(case: str, threads: int) -> None:
    space = cpu_space(CASES[case], host_target(), threads)
    check_programs(CASES[case], drawn(space, 3, seed=5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_kernels_of_random_chains_compute_them(seed: int) -> None:
    workload = random_chain(np.random.default_rng(500 + seed), 2 + seed % 2).workload
    check_programs(workload, drawn(cpu_space(workload, host_target(), 1), 1, seed)[:1])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64"])
def test_kernels_of_other_dtypes_compute_the_program(dtype: str) -> None:
    text = MLP.replace("f32", dtype)
    workload = workload_from_notation(text, {"M": 19, "K": 5, "J": 32, "N": 9})
    check_programs(workload, drawn(cpu_space(workload, host_target(), 1), 3, seed=1))


# --- what the cost model sees


def best_estimates(workload: Workload, target: Target) -> tuple[float, float]:
    """The least estimates of unfused and of fused points, log2 of cycles."""
    space = cpu_space(workload, target, 1)
    is_fused = np.array([":fused" in name for name in space.sketches])
    estimate, rng = featurizer(space), np.random.default_rng(0)
    points = rng.integers(space.space.cardinalities, size=(2, 1024, len(space.space.knobs)))
    least = []
    for fused, own in zip((False, True), points.astype(np.int32), strict=True):
        own[:, 0] = rng.choice(np.flatnonzero(is_fused == fused), size=len(own))
        least.append(float(estimate(space.space.canonical(own))[:, ESTIMATE].min()))
    unfused, fused_least = least
    return unfused, fused_least


# Little is handed on beside what the weights of an MLP are: fused or not, its nests take the
# same time. Stencils in a row hand on as much as they read.
WEIGHTS: Mapping[str, tuple[str, dict[str, int]]] = {
    "16 rows of BERT-base's": (WIDE, {"M": 16, "K": 768, "J": 3072, "N": 768}),
    "128 rows of BERT-base's": (WIDE, {"M": 128, "K": 768, "J": 3072, "N": 768}),
    "128 rows of Llama's": (GATED, {"M": 128, "K": 2048, "J": 5632, "N": 2048}),
}
LITTLE = 0.15  # log2 of a tenth


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_estimate_gains_nothing_by_fusing_large_products(name: str) -> None:
    text, extents = WEIGHTS[name]
    unfused, fused = best_estimates(workload_from_notation(text, extents), GOLDEN_COVE)
    assert fused > unfused - LITTLE


def test_the_estimate_gains_by_fusing_stencils_that_leave_the_caches() -> None:
    workload = workload_from_notation(BLURS, {"H": 1080, "W": 1920})
    unfused, fused = best_estimates(workload, GOLDEN_COVE)
    assert fused < unfused - LITTLE


def fused_nests(workload: Workload) -> tuple[TargetSpace[LoopNestFacts], list[NestTable]]:
    space = cpu_space(workload, NARROW, 1)
    return space, tables(space, "Ofused:fused")


def test_each_member_of_a_fused_group_has_a_nest_with_its_own_reads() -> None:
    _, nests = fused_nests(CASES["mlp"])
    reads = {nest.facts.result: {read.read.tensor for read in nest.operands} for nest in nests}
    assert reads == {"Hfused": {"X", "U"}, "Ofused": {"Hfused", "D"}}
    held = {nest.facts.result: list(nest.held) for nest in nests}
    assert held["Hfused"] == [False, False, True], "its result is in a buffer of a tile's size"
    assert sum(held["Ofused"]) == 1


@pytest.mark.parametrize("case", CASES)
def test_nests_compute_what_tiles_say_that_they_compute_again(case: str) -> None:
    """Up to what register tiles add that do not divide a region."""
    space, nests = fused_nests(CASES[case])
    (sketch,) = space.sketches["Ofused:fused"]
    assert isinstance(sketch, FusedSketch)
    rng = np.random.default_rng(0)
    points = space.space.sample(rng, 256)
    points[:, 0] = list(space.sketches).index("Ofused:fused")
    computed = sum(nest_work(nest, points, NARROW).overlap * nest.flops for nest in nests)
    needed = sum(nest.flops for nest in nests)
    stated = [sketch.tile.of(space.space.config(point)).recomputation for point in points]
    assert (computed / needed >= np.array(stated) * (1 - 1e-3)).all()


def test_weights_of_a_member_come_in_again_for_each_tile_of_rows() -> None:
    """Those of all members, each as often as there are tiles of rows."""
    extents = {"M": 64, "K": 1024, "J": 2048, "N": 1024}
    space = cpu_space(workload_from_notation(MLP, extents), GOLDEN_COVE, 1)
    (sketch,) = space.sketches["Ofused:fused"]
    assert isinstance(sketch, FusedSketch)
    tiles = [tile.extents for tile in sketch.tiles]
    weights = 2 * 1024 * 2048 * 4
    for nest in tables(space, "Ofused:fused"):
        column = nest.choices.columns[sketch.tile.name]
        for rows in (16, 64):
            place = next(
                place
                for place, tile in enumerate(tiles)
                if tile["i"] == rows and tile["n"] == 1024 and tile["j"] < 2048
            )
            points = np.zeros((1, len(space.space.knobs)), np.int32)
            points[:, column] = place
            missed = nest_work(nest, points, GOLDEN_COVE).memory.missed[1]
            read = sum(
                float(missed[number, 0])
                for number, operand in enumerate(nest.operands)
                if operand.read.tensor in "UD"
            )
            assert read >= weights / 2 * 64 / rows


def test_what_is_computed_before_all_tiles_is_not_kept_in_a_cache_too_small_for_it() -> None:
    extents = {"H": 1080, "W": 1920}
    space = cpu_space(workload_from_notation(BLURS, extents), GOLDEN_COVE, 1)
    (sketch,) = space.sketches["Ofused:fused"]
    assert isinstance(sketch, FusedSketch)
    whole = next(
        place
        for place, tile in enumerate(sketch.tiles)
        if tile.extents["h"] == 1074 and tile.extents["w"] == 1914
    )
    for nest in tables(space, "Ofused:fused"):
        points = np.zeros((1, len(space.space.knobs)), np.int32)
        points[:, nest.choices.columns[sketch.tile.name]] = whole
        missed = nest_work(nest, points, GOLDEN_COVE).memory.missed[1][:, 0]
        handed_on = missed[nest.held]
        assert (handed_on > 1080 * 1900 * 4).all()


def test_weights_are_packed_tile_by_tile_where_their_rows_lie_apart() -> None:
    space = cpu_space(
        workload_from_notation(WIDE, {"M": 128, "K": 64, "J": 96, "N": 64}), NARROW, 1
    )
    (sketch,) = space.sketches["Ofused:fused"]
    assert isinstance(sketch, FusedSketch)
    packed = [tile for tile in sketch.tiles if tile.packed]
    assert packed and len(packed) < len(sketch.tiles) / 2, "not where a tile has whole rows"
    rows = {"U": 96, "D": 64}
    for tile in packed:
        for window in tile.regions.windows:
            assert window.region.extents[-1] < rows[window.tensor], "rows come closer together"
    for tile in sketch.tiles:
        assert tile.packed or not tile.regions.windows


@pytest.mark.slow
def test_the_first_batch_has_unfused_points_beside_fused_ones() -> None:
    workload = workload_from_notation(BLURS, {"H": 1080, "W": 1920})
    space = cpu_space(workload, GOLDEN_COVE, 1)
    points = alternatives(
        Domain(space.space), featurizer(space), Prior(), space.by_algorithm, seed=0
    )
    fused = {":fused" in list(space.sketches)[place] for place in points[:, 0]}
    assert fused == {False, True}


def test_recomputation_and_buffers_are_known_of_every_tile() -> None:
    space = cpu_space(CASES["blurs"], NARROW, 1)
    (sketch,) = space.sketches["Ofused:fused"]
    assert isinstance(sketch, FusedSketch)
    recomputed = [tile.recomputation for tile in sketch.tiles]
    assert min(recomputed) == 1.0 < max(recomputed) <= 2.0
    assert max(tile.held_bytes for tile in sketch.tiles) <= NARROW.l2_bytes
