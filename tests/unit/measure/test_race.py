"""Races: kernels and libraries in turn in fresh processes, each checked, losers and
failures told apart."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Conditions, Failed, FailureKind, Outcome, Timed
from tuner.measure.race import Contender, race, rival_contender
from tuner.measure.rivals import rivals
from tuner.measure.rivals.rivals import fastest, open_rival
from tuner.measure.rivals.route import Route
from tuner.measure.runner import RunnerProcess
from tuner.measure.timing import TimingPlan
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec

SHORT = TimingPlan(budget_s=0.01, max_samples=5)


@pytest.fixture(autouse=True)
def gradients() -> Iterator[None]:
    """PyTorch's routes stop recording for derivatives, in a process of their own elsewhere."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_grad_enabled(True)


def contender(name: str, path: str) -> Contender:
    return Contender(name=name, library=path, symbol="kernel", timeout_s=2.0)


def test_a_race_takes_turns_and_promotes_the_faster(
    runner: RunnerProcess, library: Callable[[str], str]
) -> None:
    order: list[tuple[int, str]] = []

    def told(number: int, name: str, outcome: Outcome) -> None:
        order.append((number, name))

    field = [
        contender("default", library("lame")),
        contender("tuned", library("good")),
        contender("broken", library("wrong")),
    ]
    result = race(field, runner, rounds=3, plan=SHORT, default="default", progress=told)
    turns = [
        (0, "tuned"),
        (0, "broken"),
        (0, "default"),
        (1, "tuned"),
        (1, "default"),
        (2, "tuned"),
        (2, "default"),
    ]
    assert order == turns
    assert set(result.rounds) == {"default", "tuned"} and all(
        len(measurements) == 3 for measurements in result.rounds.values()
    )
    assert result.failed["broken"].kind is FailureKind.WRONG_ANSWER
    assert result.decision is not None and result.decision.winner == "tuned"
    assert len(result.artifacts["tuned"]) == 64 and result.max_rel_error["tuned"] < 1e-6


def test_a_default_that_is_hopeless_and_long_besides_takes_part_in_one_round(
    runner: RunnerProcess, library: Callable[[str], str]
) -> None:
    field = [contender("default", library("slow")), contender("tuned", library("good"))]
    result = race(field, runner, rounds=3, plan=SHORT, default="default")
    assert {name: len(measurements) for name, measurements in result.rounds.items()} == {
        "default": 1,
        "tuned": 3,
    }
    assert result.decision is not None and result.decision.winner == "tuned"
    assert "took no part in further rounds" in result.decision.reason
    stands = race(
        [field[0], contender("tuned", library("wrong"))],
        runner,
        rounds=3,
        plan=SHORT,
        default="default",
    )
    assert stands.decision is not None and stands.decision.winner == "default"


def test_races_that_cannot_be_are_refused(
    runner: RunnerProcess, library: Callable[[str], str]
) -> None:
    good = contender("a", library("good"))
    for field, options, message in (
        ([], {}, "different names"),
        ([good, good], {}, "different names"),
        ([good], {"default": "b"}, "not among"),
        ([good], {"rounds": 2, "default": "a"}, "at least 3"),
        ([Contender(name="julia")], {}, "unknown rival 'julia'"),
    ):
        with pytest.raises(UsageError, match=message):
            race(field, runner, **options)


@pytest.fixture(scope="module")
def matmul_runner(lane: Lane) -> Iterator[RunnerProcess]:
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=parse_spec("matmul:M=64,N=48,K=32"), lane=lane))
        yield process


def test_numpy_races_like_a_kernel(matmul_runner: RunnerProcess) -> None:
    result = race([rival_contender("numpy")], matmul_runner, rounds=2, plan=SHORT)
    assert len(result.rounds["numpy"]) == 2 and not result.failed and result.decision is None
    assert 0 <= result.max_rel_error["numpy"] < 1e-5


def test_a_rival_without_a_route_drops_out(runner: RunnerProcess) -> None:
    outcome = runner.measure(Request(name="numpy", rival="numpy"))
    assert isinstance(outcome, Failed) and "only operators of the catalogue" in outcome.message


def test_a_rival_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"torch is not installed.*tuner\[compare\]"):
        rival_contender("torch")


def test_numpy_with_threads_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "threadpoolctl" else object()
    )
    with pytest.raises(UsageError, match="2 threads needs threadpoolctl"):
        open_rival("numpy", parse_spec("matmul:M=5,N=6,K=7"), (), 2)


def test_the_fastest_route_is_taken() -> None:
    def slow() -> None:
        sum(range(20000))

    routes = [
        Route(name=name, call=call, result=lambda: np.zeros(0))
        for name, call in (("slow", slow), ("fast", lambda: None))
    ]
    assert fastest(routes).name == "fast"


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=5,N=6,K=7",
        "matmul:M=5,N=6,K=7,transpose_a=true,transpose_b=true",
        "matmul:M=5,N=6,K=7,dtype=int8",
        "matmul:M=5,N=6,K=7,dtype=bfloat16",
        "dense:M=5,N=6,K=7,bias=true,act=relu,dtype=int8",
        "batch_matmul:B=2,M=5,N=6,K=7,transpose_b=true",
        "dense:M=5,N=6,K=7,bias=true,act=relu",
        "reduce_sum:M=8,N=9,axis=1",
        "reduce_max:M=8,N=9,axis=0",
        "reduce_mean:M=8,N=9,axis=1",
        "softmax:M=8,N=9",
        "layer_norm:M=8,N=9",
        "transpose:M=8,N=9",
    ],
)
def test_numpy_routes_compute_the_operator(spec: str) -> None:
    check_route("numpy", spec)


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=5,N=6,K=7,transpose_b=true",
        "matmul:M=24,N=16,K=32,transpose_b=true,dtype=int8",
        "dense:M=5,N=6,K=7,bias=true,act=gelu",
        "conv1d:N=1,W=9,CI=4,CO=6,KW=3,pad=1,act=leaky_relu",
        "bias_act:M=5,N=6,act=relu6",
        "conv2d:N=1,H=9,W=8,CI=4,CO=6,KH=3,KW=3,stride=2,pad=1,layout=NHWC,act=relu",
        "conv2d:N=1,H=9,W=8,CI=4,CO=6,KH=3,KW=3,pad=1,groups=2,layout=NCHW",
        "conv2d_transpose:N=1,H=5,W=6,CI=4,CO=3,KH=3,KW=3,stride=2,pad=1",
        "conv2d_transpose:N=1,H=5,W=6,CI=3,CO=3,KH=4,KW=4,stride=2,pad=1,bias=true,layout=NCHW",
        "conv3d:N=1,D=5,H=6,W=7,CI=2,CO=3,KD=3,KH=3,KW=3,pad=1",
        "depthwise_conv2d:N=1,H=9,W=8,C=4,KH=3,KW=3,pad=1,layout=NHWC",
        "depthwise_conv2d:N=1,H=9,W=8,C=4,KH=3,KW=3,pad=1,layout=NCHW",
        "max_pool2d:N=1,H=9,W=8,C=4,KH=3,KW=3,stride=2,pad=1,layout=NHWC",
        "avg_pool2d:N=1,H=8,W=8,C=4,KH=2,KW=2,stride=2,layout=NCHW",
        "global_avg_pool2d:N=1,H=9,W=8,C=4",
        "softmax:M=8,N=9",
        "log_softmax:M=8,N=9",
        "layer_norm:M=8,N=9",
        "rms_norm:M=8,N=9",
        "reduce_max:M=8,N=9,axis=1",
        "transpose:M=8,N=9",
        "attention:B=1,H=2,S=8,D=4,causal=true",
    ],
)
def test_torch_routes_compute_the_operator(spec: str) -> None:
    pytest.importorskip("torch")
    check_route("torch", spec)


@pytest.mark.parametrize(
    "spec",
    [
        "dense:M=5,N=6,K=7,bias=true,act=gelu,const=W",
        "dense:M=5,N=6,K=7,act=relu,const=W",
        "conv2d:N=1,H=9,W=8,CI=4,CO=6,KH=3,KW=3,stride=2,pad=1,layout=NHWC,act=relu,const=W",
        "conv2d:N=1,H=9,W=8,CI=4,CO=6,KH=3,KW=3,pad=1,groups=2,layout=NCHW,bias=true,const=W",
    ],
)
def test_prepacked_routes_compute_the_operator(spec: str) -> None:
    pytest.importorskip("torch")
    check_route("onednn", spec)


def test_weights_that_are_not_known_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(UsageError, match="const=W"):
        open_rival("onednn", parse_spec("dense:M=5,N=6,K=7"), (), 1)


@pytest.mark.parametrize("name", ["scipy", "torch"])
@pytest.mark.parametrize(
    "spec",
    [
        "spmv:M=50,N=40,density=0.1,index=int64",
        "spmm:M=50,N=40,K=7,density=0.1,lengths=power_law",
        "embedding_bag:V=50,D=7,B=9,L=3",
        "embedding_bag:V=50,D=7,B=9,L=3,mode=mean,index=int64",
        "embedding_bag:V=50,D=7,B=9,L=3,mode=weighted",
        "segment_reduce:M=9,N=50,D=7",
    ],
)
def test_rivals_compute_the_sparse_workload(name: str, spec: str) -> None:
    pytest.importorskip(name)
    check_route(name, spec)


@pytest.mark.parametrize(
    "spec",
    [
        "sddmm:M=50,N=40,K=7,density=0.1",
        "scatter_add:M=9,N=50,D=7",
        "gather_matmul:V=50,M=9,N=7,K=5,transpose_b=true,index=int64",
        "segment_reduce:M=9,N=500,D=7,mode=max,lengths=equal",
        "embedding_bag:V=50,D=7,B=9,L=3,dtype=bfloat16",
        "slide_layer:B=5,D=7,C=31,L=4,index=int64",
        "slide_layer:B=5,D=7,C=31,L=4,softmax=true,offset=true",
        "slide_layer_gradient:B=5,D=7,C=31,L=4",
        "slide_layer_gradient:B=5,D=7,C=31,L=4,A=9,of=weights",
    ],
)
def test_pytorch_computes_what_scipy_lacks(spec: str) -> None:
    pytest.importorskip("torch")
    check_route("torch", spec)
    with pytest.raises(UsageError, match="no route to operator"):
        open_rival(
            "scipy",
            parse_spec(spec),
            tuple(make_inputs(parse_spec(spec).expression, 0).values()),
            1,
        )


def check_route(name: str, spec: str) -> None:
    workload = parse_spec(spec)
    expression = workload.expression
    inputs = make_inputs(expression, 0)
    rival = open_rival(name, workload, tuple(inputs.values()), 1)
    want, magnitude = evaluate_with_magnitude(expression, inputs)
    output = expression.outputs[0]
    got = want[output].astype("float32") * 0 - 1
    rival.invoke([*inputs.values(), got])
    assert max_rel_error(
        expression, {output: got}, want, magnitude
    ) <= rivals.RIVAL_BOUND_FACTOR * error_bound(expression)
    assert len(rival.clock(2, 3)) == 3


class Scripted:
    """A runner on which every call of a contender takes the seconds given by its name."""

    def __init__(self, **call_s: float) -> None:
        self.call_s, self.asked = call_s, list[Request]()

    def measure(self, request: Request) -> Outcome:
        self.asked.append(request)
        if request.name == "broken" and request.verification == "screening":
            return Failed(kind=FailureKind.RUN_CRASH, message="crashed")
        seconds = self.call_s[request.name]
        abandoned = request.abandon_above_s is not None and seconds > request.abandon_above_s
        return Timed(
            samples_s=(seconds,) * (2 if abandoned else 5),
            max_rel_error=0.0,
            artifact=request.name,
            conditions=Conditions(lane="cpu:0", isolation="none", steal_s=0.0, abandoned=abandoned),
        )


def test_a_default_of_seconds_a_call_does_not_dominate_the_race() -> None:
    runner = Scripted(default=3.0, tuned=0.01, other=0.01)
    field = [contender(name, name) for name in ("default", "tuned", "other")]
    result = race(field, runner, rounds=5, default="default")
    naive = [request for request in runner.asked if request.name == "default"]
    assert [request.verification for request in naive] == ["timed"]
    assert [len(samples) for samples in result.rounds["default"]] == [2] and len(
        result.rounds["tuned"]
    ) == 3
    assert result.decision is not None and result.decision.winner in ("tuned", "other")


@pytest.mark.parametrize(
    ("call_s", "rounds"),
    [
        ({"default": 0.03, "tuned": 0.01}, {"default": 3, "tuned": 3}),
        ({"default": 0.03, "tuned": 0.01, "worse": 0.011}, {"default": 3, "tuned": 3, "worse": 3}),
        ({"default": 0.03, "tuned": 0.01, "equal": 0.01}, {"default": 3, "tuned": 3, "equal": 3}),
        (
            {"default": 0.03, "tuned": 0.01, "incumbent": 0.01},
            {"default": 3, "tuned": 5, "incumbent": 5},
        ),
        ({"default": 0.015, "tuned": 0.001}, {"default": 3, "tuned": 3}),
        ({"default": 0.02, "tuned": 0.001}, {"default": 1, "tuned": 3}),
        ({"default": 0.01, "tuned": 0.03}, {"default": 3, "tuned": 3}),
        ({"default": 0.01}, {"default": 5}),
    ],
)
def test_who_is_surely_beaten_races_no_more_and_one_alone_neither(
    call_s: dict[str, float], rounds: dict[str, int]
) -> None:
    result = race(
        [contender(name, name) for name in call_s],
        Scripted(**call_s),
        rounds=5,
        default="default",
        incumbent="incumbent",
    )
    assert {name: len(measurements) for name, measurements in result.rounds.items()} == rounds
    assert result.decision is not None and call_s[result.decision.winner] == min(call_s.values())


def test_a_comparison_without_a_default_times_everybody_to_the_end() -> None:
    result = race(
        [contender("tuned", "t"), contender("worse", "w")],
        Scripted(tuned=0.01, worse=0.03),
        rounds=5,
    )
    assert {len(measurements) for measurements in result.rounds.values()} == {5}


def test_a_default_that_lost_is_verified_when_all_that_beat_it_fail() -> None:
    runner = Scripted(default=3.0, broken=0.01)
    result = race(
        [contender("default", "d"), contender("broken", "b")], runner, rounds=5, default="default"
    )
    assert set(result.failed) == {"broken"} and runner.asked[-1].verification == "promotion"
    assert result.decision is not None and result.decision.winner == "default"


def test_a_library_is_timed_in_full_however_slow_it_begins() -> None:
    """It makes its plans in the first calls: given up after those, it would be judged
    by them alone."""
    runner = Scripted(default=0.02, tuned=0.01, numpy=3.0)
    contenders = [contender("default", "d"), contender("tuned", "t"), Contender(name="numpy")]
    result = race(contenders, runner, rounds=5, default="default")
    assert [len(samples) for samples in result.rounds["numpy"]] == [5] * 3
