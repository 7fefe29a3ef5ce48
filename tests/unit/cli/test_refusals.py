"""Bad input: one clear message that names the value and the way out, exit code 2, and
nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import native_agent, native_target
from tuner.cli.exits import Exit

SMALL = "matmul:M=8,N=8,K=8"
TUNE = [
    (["nothing:M=1"], ["unknown operator 'nothing'", "known are matmul"]),
    (["matmul:M=5,N=5,Q=5"], ["no parameter 'Q'", "it takes M, N, K"]),
    (["matmul:M=5,N=5"], ["needs K"]),
    (["matmul:M=0,N=5,K=5"], ["M=0", "1 to"]),
    (["matmul:M=-3,N=5,K=5"], ["M=-3", "1 to"]),
    (["matmul:M=5,N=5,K=5,dtype=complex64"], ["dtype=complex64", "float32"]),
    (["matmul:M=200000,N=200000,K=200000"], ["GiB", "smaller extents"]),
    ([SMALL, "--threads", "100000"], ["threads is 100000", "1024"]),
    ([SMALL, "--threads", "1000"], ["1000 threads", "this process may use"]),
    ([SMALL, "--trials", "0"], ["trials is 0 (flag --trials)", "greater than or equal to 1"]),
    ([SMALL, "--strategy", "luck"], ["strategy is 'luck'", "annealing"]),
    ([SMALL, "--target", "abacus"], ["unknown target 'abacus'", "cpu"]),
    ([SMALL, "--target", "cuda:sm_90", "--threads", "2"], ["threads is 2", "take 1"]),
    ([SMALL, SMALL], ["the same workload", "give it once"]),
    ([SMALL, "--shapes", "M=4"], ["--shapes M=4", "--notation FILE"]),
    ([SMALL, "--numerics", "tensor"], ["--numerics is for --notation", "in its spec"]),
    (["--notation", "missing.kernel"], ["missing.kernel", "No such file"]),
    ([], ["no workload was given", "--notation FILE"]),
]


@pytest.mark.parametrize(("arguments", "says"), TUNE)
def test_tune_refuses_before_anything_is_written(
    tuner: Callable[..., Any], home: Path, arguments: list[str], says: list[str]
) -> None:
    called = tuner("tune", *arguments)
    assert called.code == Exit.USAGE
    assert called.out == ""
    assert [words for words in says if words not in called.err] == []
    assert called.err.startswith("error: ") and called.err.count("\n") == 1
    assert not (home / "data").exists()


def test_what_a_device_has_no_room_for_is_refused(tuner: Callable[..., Any], home: Path) -> None:
    there = ("--target", native_target().name, "--device", native_agent().text)
    called = tuner("tune", "matmul:M=64,N=70000,K=1024", *there)
    assert called.code == Exit.USAGE and "B has 286,720,000 bytes, and a device takes" in called.err
    assert not (home / "data").exists()


NOTATION = """kernel k(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) {
  C[i, j] += A[i, k] * B[k, j]
}
"""
NOTATION_FAULTS = [
    (NOTATION.replace("A[i, k] *", "Z[i, k] *"), "line 2, column 14"),
    (NOTATION.replace("A[i, k] *", "A[i + 1, k] *"), "line 2"),
    (NOTATION.replace("}", "  T[i, j] = A[i, j] for i in 0:M, j in 0:K\n}"), "line 3"),
    (NOTATION.replace("+= A[i, k]", "+= C[i, k]"), "line 2"),
    (NOTATION.replace("C[i, j] +=", "C[i, j] +"), "line 2"),
]


@pytest.mark.parametrize(("text", "position"), NOTATION_FAULTS)
def test_a_faulty_notation_is_refused_with_its_position(
    tuner: Callable[..., Any], home: Path, text: str, position: str
) -> None:
    (home / "work" / "faulty.kernel").write_text(text)
    called = tuner("tune", "--notation", "faulty.kernel", "--shapes", "M=4,N=5,K=6")
    assert called.code == Exit.USAGE
    assert called.err.startswith(f"error: faulty.kernel: {position}")
    assert not (home / "data").exists()


@pytest.mark.parametrize(
    ("shapes", "says"),
    [("M=4,N=x", "'N=x'"), ("M=4,M=5", "gives M twice"), ("M=4", "shape symbol 'K'")],
)
def test_faulty_shapes_are_refused(
    tuner: Callable[..., Any], home: Path, shapes: str, says: str
) -> None:
    (home / "work" / "mm.kernel").write_text(NOTATION)
    called = tuner("tune", "--notation", "mm.kernel", "--shapes", shapes)
    assert called.code == Exit.USAGE and says in called.err
    assert not (home / "data").exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:////proc/none/x.db", "cannot make the folder"),
        ("postgresql://nobody@127.0.0.1:1/none", "check that the server runs"),
        ("mysql://host/x", "postgresql://"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused(
    tuner: Callable[..., Any], url: str, says: str
) -> None:
    called = tuner("tune", SMALL, "--db", url)
    assert called.code == Exit.USAGE and says in called.err and called.out == ""


def test_listing_a_database_that_was_named_but_does_not_exist_does_not_make_it(
    tuner: Callable[..., Any], home: Path
) -> None:
    called = tuner("jobs", "--db", "sqlite:///typo.db")
    assert called.code == Exit.USAGE and "no such file" in called.err
    assert not (home / "work" / "typo.db").exists()


@pytest.mark.parametrize("number", ["nan", "inf", "1e999"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", SMALL, "--fail-if-slower"],
        ["verify", "kit", "--fail-if-slower"],
        ["ci", "--tolerance"],
        ["lookup", SMALL, "--within"],
        ["export", "--all", "-o", "kit", "--within"],
    ],
)
def test_percent_that_decide_nothing_are_refused(
    tuner: Callable[..., Any], arguments: list[str], number: str
) -> None:
    """A gate of infinite percent would never fail."""
    called = tuner(*arguments, number)
    assert called.code == Exit.USAGE and called.out == ""
    says = "greater than or equal" if number == "nan" else "inf passes any kernel"
    assert arguments[-1] in called.err and says in called.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "j_nope"], "no job 'j_nope'"),
        (["trials", "last"], "there is no job yet"),
        (["cancel", "j_nope"], "no job 'j_nope'"),
        (["resume", "j_nope"], "no job 'j_nope'"),
        (["jobs", "--state", "odd"], "unknown state 'odd'"),
        (["bench", SMALL], "there is no kernel of matmul"),
        (["bench", SMALL, "--against", "abacus"], "unknown rival 'abacus'"),
        (["export", "--all", "-o", "out"], "has no kernel"),
        (["export", "-o", "out"], "give --all"),
        (["export", "--all"], "add -o DIR"),
        (["export", "--all", "-o", "out", "--for", "caffe"], "of c, torch, jax, onnxruntime"),
        (
            ["export", "--all", "-o", "out", "--for", "jax", "--format", "tvmscript"],
            "leave out --for",
        ),
        (["export", "k_nope", "-o", "out"], "no kernel 'k_nope'"),
        (["export", "--all", "-o", "out", "--format", "tvmscript", "--isa", "x86-64"], "--isa is"),
        (["export", "--all", "-o", "out", "--format", "tvmscript", "--name", "x"], "--name is for"),
        (["export", "--all", "-o", "out", "--public-key", "ed25519:" + "0" * 64], "signed here"),
        (["keys", "create", "x" * 201], "1 to 200 characters, this one has 201"),
        (["keys", "create", ""], "1 to 200 characters"),
        (["export", SMALL, "-o", "out"], f"named by its id, which tuner best {SMALL} prints"),
        (["export", "spmm:K=4,pattern=../no.npz", "-o", "out"], "pattern=../no.npz: "),
        (["advise", "spmm:K=4,pattern=../no.npz"], "pattern=../no.npz: "),
        (["ops", "nothing"], "unknown operator 'nothing'"),
        (["space", "matmul:M=8"], "needs N"),
        (["grad", SMALL, "--wrt", "A,W"], "has no input 'W'"),
        (["grad", "embedding:N=4,V=5,D=3", "--wrt", "X"], "holds int32"),
    ],
)
def test_other_commands_refuse_too(
    tuner: Callable[..., Any], arguments: list[str], says: str
) -> None:
    called = tuner(*arguments)
    assert called.code == Exit.USAGE and says in called.err and called.out == ""
