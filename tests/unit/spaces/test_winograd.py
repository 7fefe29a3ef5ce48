"""Winograd's convolutions: the same function as the sum, found by indices alone, offered
where less accuracy was asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.program_interpreter import run
from tests.support.spaces import shared_space
from tests.support.targets import ZEN5
from tuner.cost_model.features import featurizer
from tuner.spaces.by_target import cpu_space
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.spaces.rewrite.stages import plainly_named
from tuner.spaces.rewrite.winograd import winograd, winograd_tiles
from tuner.spaces.rewrite.winograd_tile import F2X2_3X3, SUFFIX, TILES, WinogradTile
from tuner.workload.expression import Expression
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation

NARROW = replace(ZEN5, vector_bytes=16, vector_registers=16, isa=())
SMALL = "conv2d:N=1,H=4,W=5,CI=2,CO=4,KH=3,KW=3,pad=1,act=relu"


@pytest.mark.parametrize(
    "spec",
    [
        SMALL,
        "conv2d:N=2,H=7,W=8,CI=3,CO=5,KH=3,KW=3,pad=0,layout=NCHW,bias=true",
        "conv2d:N=1,H=5,W=4,CI=1,CO=1,KH=3,KW=3,pad=2",
    ],
)
@pytest.mark.parametrize("joins_tiles", [False, True])
def test_the_rewritten_stages_compute_the_same(spec: str, joins_tiles: bool) -> None:
    check(plainly_named(parse_spec(spec).expression), joins_tiles=joins_tiles)


@pytest.mark.parametrize("tile", TILES, ids=str)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_every_tile_computes_the_same_whatever_the_shape(
    tile: WinogradTile, data: st.DataObject
) -> None:
    """Extents need not be multiples of the tile, and padding may be wider than the window."""
    shape = [data.draw(st.integers(max(tile.outputs, 4), 9)) for _ in range(tile.directions)]
    pad = data.draw(st.integers(0, tile.window))
    inside = [extent + tile.window - 1 - 2 * pad for extent in shape]
    assume(min(inside) >= 1)
    channels = f"N={data.draw(st.integers(1, 2))},CI=2,CO=3,pad={pad}"
    spec = (
        f"conv1d:{channels},W={inside[0]},KW={tile.window}"
        if tile.directions == 1
        else f"conv2d:{channels},H={inside[0]},W={inside[1]},KH={tile.window},KW={tile.window}"
        f",layout={data.draw(st.sampled_from(['NHWC', 'NCHW']))}"
    )
    expression = plainly_named(parse_spec(spec).expression)
    assume(tile in winograd_tiles(expression))
    check(expression, joins_tiles=data.draw(st.booleans()), tile=tile)


@pytest.mark.parametrize(
    ("spec", "tiles"),
    [
        ("conv2d:N=1,H=56,W=56,CI=3,CO=4,KH=3,KW=3,pad=1", [(2, 3, 2), (4, 3, 2)]),
        ("conv2d:N=1,H=6,W=6,CI=3,CO=4,KH=3,KW=3,pad=1", [(2, 3, 2)]),  # 2x6 are as many as 3x4
        ("conv2d:N=1,H=14,W=14,CI=3,CO=4,KH=5,KW=5,pad=2", [(2, 5, 2), (4, 5, 2)]),
        ("conv2d:N=1,H=17,W=14,CI=3,CO=4,KH=3,KW=1", [(2, 3, 1), (4, 3, 1)]),
        ("conv2d:N=1,H=14,W=16,CI=3,CO=4,KH=1,KW=5", [(2, 5, 1), (4, 5, 1)]),
        ("conv1d:N=2,W=19,CI=3,CO=4,KW=3,pad=1", [(2, 3, 1), (4, 3, 1)]),
        ("conv2d:N=1,H=9,W=9,CI=3,CO=4,KH=3,KW=5", []),  # two lengths
    ],
)
def test_tiles_are_offered_that_multiply_less_than_smaller_ones(
    spec: str, tiles: list[tuple[int, int, int]]
) -> None:
    offered = winograd_tiles(parse_spec(spec).expression)
    assert [(tile.outputs, tile.window, tile.directions) for tile in offered] == tiles


def check(
    expression: Expression, *, joins_tiles: bool, tile: WinogradTile = F2X2_3X3
) -> Expression:
    assert tile in winograd_tiles(expression)
    rewritten = winograd(expression, tile, joins_tiles=joins_tiles)
    assert all(stage.reducer is None or "m" in stage.name for stage in rewritten.stages), (
        "only the products are summed"
    )
    inputs = make_inputs(expression, seed=1)
    want, got = evaluate(expression, inputs), evaluate(rewritten, inputs)
    np.testing.assert_allclose(
        got[rewritten.outputs[0]], want[expression.outputs[0]], rtol=1e-9, atol=1e-9
    )
    return rewritten


@pytest.mark.parametrize(
    ("data", "weights", "made", "products"),
    [
        ("n, h + r, w + s, c", "r, s, c, k", "n, h, w, k", (4, 4, 2 * 3 * 4, 5)),
        ("n, c, h + r, w + s", "k, c, r, s", "n, k, h, w", (4, 4, 5, 2 * 3 * 4)),
        (
            "n, h + r, w + s, c",
            "n, r, s, c, k",
            "n, h, w, k",
            (4, 4, 2, 3 * 4, 5),
        ),  # weights of each image its own
        (
            "n, h + r, w + s, c",
            "r, s, c, k",
            "w, n, h, k",
            (4, 4, 2 * 3 * 4, 5),
        ),  # made in another order
        (
            "h + r, n, c, w + s",
            "r, s, c, k",
            "h, n, w, k",
            (4, 4, 2 * 3 * 4, 5),
        ),  # sides apart from each other
    ],
)
def test_squares_of_all_images_are_numbered_along_one_axis(
    data: str, weights: str, made: str, products: tuple[int, ...]
) -> None:
    extents = {"n": 2, "h": 6, "w": 7, "c": 3, "k": 5, "r": 3, "s": 3, "h + r": 8, "w + s": 9}
    x, w, y = (
        "[" + ", ".join(str(extents[index]) for index in indices.split(", ")) + "]"
        for indices in (data, weights, made)
    )
    text = (
        f"kernel t(X: f32{x}, W: f32{w}) -> (Y: f32{y}) {{ Y[{made}] += X[{data}] * W[{weights}] }}"
    )
    rewritten = check(plainly_named(workload_from_notation(text, {}).expression), joins_tiles=True)
    assert next(stage.tensor.shape for stage in rewritten.stages if stage.reducer) == products


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:N=1,H=9,W=9,CI=3,CO=5,KH=3,KW=3,stride=2,pad=1",
        "conv2d:N=1,H=9,W=9,CI=3,CO=5,KH=3,KW=3,dilation=2,pad=2",
        "conv2d:N=1,H=9,W=9,CI=4,CO=6,KH=3,KW=3,groups=2,pad=1",
        "conv2d:N=1,H=9,W=9,CI=3,CO=5,KH=7,KW=7,pad=3",
        "conv2d:N=1,H=9,W=9,CI=3,CO=5,KH=3,KW=3,pad=1,dtype=float16",
        "depthwise_conv2d:N=1,H=9,W=9,C=5,KH=3,KW=3,pad=1",
        "conv1d:N=1,W=9,CI=3,CO=5,KW=3,pad=1,stride=2",
        "conv3d:N=1,D=9,H=9,W=9,CI=2,CO=3,KD=3,KH=3,KW=3,pad=1",
        "matmul:M=9,N=9,K=3",
    ],
)
def test_other_stages_are_left_as_they_are(spec: str) -> None:
    assert winograd_tiles(parse_spec(spec).expression) == ()


def test_it_is_a_sketch_under_fast_numerics_alone() -> None:
    strict, fast = (shared_space(spec, NARROW).space for spec in (SMALL, f"{SMALL},numerics=fast"))
    assert not any(SUFFIX in sketch.name for sketch in strict.combinations)
    assert [sketch.name for sketch in fast.combinations if SUFFIX not in sketch.name] == [
        sketch.name for sketch in strict.combinations
    ]
    assert sum(SUFFIX in sketch.name for sketch in fast.combinations) == 2
    assert len({knob.name for knob in fast.knobs}) == len(fast.knobs)


def test_a_time_is_judged_by_the_fewest_operations() -> None:
    strict, fast = parse_spec(SMALL), parse_spec(f"{SMALL},numerics=fast")
    assert fewest_flops(strict) == strict.expression.flops
    assert fewest_flops(fast) == int(strict.expression.flops / 4)


@pytest.mark.parametrize(
    "spec",
    [
        SMALL,
        "conv2d:N=1,H=7,W=6,CI=4,CO=8,KH=3,KW=3,pad=1,layout=NCHW,bias=true",
        "conv1d:N=2,W=19,CI=4,CO=5,KW=5,pad=2,layout=NCW",
    ],
)
def test_programs_compute_what_the_reference_computes(spec: str) -> None:
    workload = parse_spec(f"{spec},numerics=fast")
    space = cpu_space(workload, NARROW, 1)
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)[workload.expression.outputs[0]]
    points = space.space.sample(np.random.default_rng(0), 64)
    assert np.isfinite(featurizer(space)(points)).all()
    for place, sketch in enumerate(space.space.combinations):
        if SUFFIX not in sketch.name:
            continue
        point = next(point for point in points if point[0] == place)
        (got,) = run(space.program(space.space.config(point)), dict(inputs))
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_what_is_added_beside_an_incomplete_patch_is_read_within_its_tensor() -> None:
    """7 outputs are two tiles of four, and the last of eight has no residual to add."""
    text = """kernel t(X: f32[9, 9, 4], W: f32[3, 3, 4, 8], R: f32[7, 7, 8]) -> (Y: f32[7, 7, 8]) {
      T[h, w, k] += X[h + r, w + s, c] * W[r, s, c, k]
      Y[h, w, k] = max(T[h, w, k] + R[h, w, k], 0)
    }"""
    workload = replace(workload_from_notation(text, {}), numerics="fast")
    space = cpu_space(workload, NARROW, 1)
    (name,) = (sketch.name for sketch in space.space.combinations if "win4" in sketch.name)
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    (got,) = run(space.program({"sketch": name}), dict(inputs))
    want = evaluate(workload.expression, inputs)["Y"]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("weights", "rest"),
    [("Ywin", "Y[h, w, k] += X[h + r, w + s, c] * Ywin[r, s, c, k]"),
     ("F",
     "T[h, w, k] += X[h + r, w + s, c] * F[r, s, c, k]\n Tm[h] += T[h, w, k]\n Y[h, w, k] = "
     "T[h, w, k] + Tm[h]"),
     ("Twin",
     "T[h, w, k] += X[h + r, w + s, c] * Twin[r, s, c, k]\n Tu[h] = T[h, 0, 0] * 2\n Y[h, w, k] "
     "= T[h, w, k] + Tu[h]")],
)  # fmt: skip
def test_names_that_are_taken_are_not_given_again(weights: str, rest: str) -> None:
    text = (
        f"kernel k(X: f32[10, 10, 4], {weights}: f32[3, 3, 4, 8]) -> (Y: f32[8, 8, 8]) {{ {rest} }}"
    )
    made = check(workload_from_notation(text, {}).expression, joins_tiles=False)
    names = [*(tensor.name for tensor in made.inputs), *(stage.name for stage in made.stages)]
    assert len(set(names)) == len(names)
