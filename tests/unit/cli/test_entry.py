"""The outermost shell: global flags anywhere, errors as one line with their exit code,
and a start that loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

import tuner as product
from tests.support.depth import thinned
from tuner.cli.entry import hoist
from tuner.cli.exits import Exit, exit_code
from tuner.db.errors import DatabaseBusy, DatabaseFull, NotFound, SchemaMismatch, StaleLease
from tuner.errors import DatabaseError, TunerError, UsageError, WorkloadError

HEAVY = ("tvm", "ray", "xgboost", "fastapi", "sqlalchemy", "scipy")


@pytest.mark.parametrize(
    ("given", "hoisted"),
    [
        (["jobs", "--json"], ["--json", "jobs"]),
        (
            ["tune", "x", "--db", "sqlite:///a", "--trials", "5"],
            ["--db", "sqlite:///a", "tune", "x", "--trials", "5"],
        ),
        (["jobs", "--db=sqlite:///a", "-q"], ["--db=sqlite:///a", "-q", "jobs"]),
        (["space", "--", "--json"], ["space", "--", "--json"]),
        (["jobs", "--db"], ["--db", "jobs"]),
    ],
)
def test_global_flags_may_follow_the_command(given: list[str], hoisted: list[str]) -> None:
    assert hoist(given) == hoisted


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), Exit.USAGE),
        (WorkloadError("x"), Exit.USAGE),
        (NotFound("x"), Exit.USAGE),
        (DatabaseError("x"), Exit.USAGE),
        (SchemaMismatch("x"), Exit.USAGE),
        (DatabaseBusy("x"), Exit.FAILED),
        (DatabaseFull("x"), Exit.FAILED),
        (StaleLease("x"), Exit.FAILED),
        (TunerError("x"), Exit.FAILED),
    ],
)
def test_each_error_has_its_exit_code(error: TunerError, code: Exit) -> None:
    assert exit_code(error) is code


def test_version(tuner: Callable[..., Any]) -> None:
    called = tuner("--version")
    assert (called.code, called.out) == (0, f"tuner {product.__version__}\n")


def test_an_unknown_command_is_a_usage_error_with_the_nearest(tuner: Callable[..., Any]) -> None:
    called = tuner("tone")
    assert called.code == Exit.USAGE
    assert "'tune'" in called.err and called.out == ""


def test_a_refused_setting_is_one_line_on_standard_error(
    tuner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_TRIALS", "-4")
    called = tuner("config", "show")
    assert called.code == Exit.USAGE
    assert called.err.startswith("error: setting trials is '-4' (environment TUNER_TRIALS)")
    assert called.err.count("\n") == 1 and called.out == ""


@pytest.mark.parametrize(
    "arguments",
    thinned(
        [
            ["tune", "--help"],
            ["space", "matmul:M=64,N=64,K=64"],
            ["--help"],
            ["ops"],
            ["space", "matmul:M=64,N=64,K=64", "--target", "cuda:sm_90"],
            ["grad", "softmax:M=64,N=64"],
            ["config", "show"],
        ],
        2,
        pytest.mark.slow,
    ),
)
def test_nothing_heavy_is_loaded_to_answer(arguments: list[str], tmp_path: Path) -> None:
    """In a fresh process that ends by naming the heavy modules it loaded."""
    program = (
        "import sys\nfrom tuner.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    code = end.code\n"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules], code or 0, "
        f"file=sys.stderr)"
    )
    root = Path(product.__file__).parent.parent
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "XDG_DATA_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr.strip().endswith("heavy: [] 0"), ended.stderr
    assert list(tmp_path.iterdir()) == []


def in_a_process(
    *arguments: str, folder: Path, stdout: IO[bytes] | int = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(product.__file__).parent.parent),
            "XDG_CONFIG_HOME": str(folder),
            "XDG_DATA_HOME": str(folder),
            **variables,
        },
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["ops"], ["config", "show", "--json"]])
def test_output_to_a_full_disk_is_one_line_and_a_failure(
    arguments: list[str], tmp_path: Path
) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = in_a_process(*arguments, folder=tmp_path, stdout=full)
    assert ended.returncode == Exit.FAILED
    assert ended.stderr.startswith(b"error: No space left on device; ")
    assert ended.stderr.count(b"\n") == 1


def test_a_terminal_without_the_letters_gets_their_codes(tmp_path: Path) -> None:
    (tmp_path / "tuner").mkdir()
    (tmp_path / "tuner" / "tuner.toml").write_text('lanes = "µ×"\n', encoding="utf-8")
    ended = in_a_process("config", "show", folder=tmp_path, PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert rb"\xb5\xd7" in ended.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "x" * 300],
        ["combine", "kit", "-o", "x" * 300],
        ["jobs", "--db", "sqlite:///" + "x" * 300],
        ["export", "--all", "-o", "x" * 300],
        ["quantize", "a.onnx", "--calibrate", "b.npz", "-o", "x" * 300 + ".onnx"],
    ],
)
def test_a_path_that_no_file_can_have_is_one_line(
    tuner: Callable[..., Any], arguments: list[str]
) -> None:
    called = tuner(*arguments)
    assert called.code in (Exit.FAILED, Exit.USAGE) and called.out == ""
    assert called.err.startswith("error: ") and called.err.count("\n") == 1
    assert "File name too long" in called.err or "has no kernel" in called.err


def test_the_package_offers_its_names_without_loading_them() -> None:
    program = (
        f"import sys, tuner; print(dir(tuner), [name for name in {HEAVY!r} if name in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(product.__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "'tune'" in shown and shown.strip().endswith("[]")


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tone'"):
        _ = product.tone
