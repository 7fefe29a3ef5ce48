"""`tuner verify` from the shell's side: exit codes, the JSON document, and directories
that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Tuner
from tests.support.relu_kernel import relu_kernel
from tuner.export.library import export_library
from tuner.export.signature import signer_at

FIELDS = {
    "symbol", "workload", "ok", "error", "max_rel_error", "median_s", "ci95_s",
    "disturbed",
    "manifest_median_s", "ratio", "same_target",
    "threads",
    "variants", "sanitized",
}  # fmt: skip


@pytest.fixture
def exported(home: Path) -> Path:
    export_library([relu_kernel()], home / "kit", "kit")
    return home / "kit"


def test_a_right_library_ends_with_0(tuner: Tuner, exported: Path) -> None:
    called = tuner("verify", str(exported), "--json", "--seed", "7")
    assert called.code == 0, called.err
    document = called.document
    assert (
        document["ok"]
        and document["error"] is None
        and document["seed"] == 7
        and document["name"] == "kit"
    )
    (function,) = document["functions"]
    assert set(function) == FIELDS and function["ok"] and function["ratio"] > 0
    assert "right" in tuner("verify", str(exported)).out


def test_a_wrong_answer_ends_with_1(tuner: Tuner, home: Path) -> None:
    export_library([relu_kernel("y[i] = x[i];")], home / "wrong", "kit")
    called = tuner("verify", str(home / "wrong"), "--json")
    assert (
        called.code == 1
        and not called.document["ok"]
        and "wrong_answer" in called.document["functions"][0]["error"]
    )
    assert "failed" in tuner("verify", str(home / "wrong")).out


def test_a_flipped_byte_ends_with_1_and_one_message(tuner: Tuner, exported: Path) -> None:
    library = exported / "lib" / "libkit.so"
    library.write_bytes(library.read_bytes()[:-1] + b"!")
    called = tuner("verify", str(exported))
    assert (
        called.code == 1
        and called.out == ""
        and called.err.count("\n") == 1
        and "was altered" in called.err
    )
    called = tuner("verify", str(exported), "--json")
    assert (
        called.code == 1
        and called.document["functions"] == []
        and "was altered" in called.document["error"]
    )


def test_a_gate_on_time_ends_with_6(tuner: Tuner, exported: Path) -> None:
    manifest = exported / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"median_s": 1e-07', '"median_s": 1e-12'))
    assert tuner("verify", str(exported), "--fail-if-slower", "10").code == 6
    assert tuner("verify", str(exported)).code == 0


def test_no_directory_is_a_usage_error(tuner: Tuner) -> None:
    called = tuner("verify", "nowhere")
    assert called.code == 2 and "is no directory" in called.err


def test_a_library_for_cpus_is_not_for_compute_sanitizer(tuner: Tuner, exported: Path) -> None:
    called = tuner("verify", str(exported), "--sanitize", "all")
    assert called.code == 2 and "kit is for CPUs" in called.err and called.out == ""
    called = tuner("verify", str(exported), "--sanitize", "memcheck,leaks")
    assert (
        called.code == 2
        and "'leaks' is no tool of compute-sanitizer; give all, or some of memcheck" in called.err
    )


def test_a_signature_is_asked_for_by_key(tuner: Tuner, home: Path) -> None:
    signer = signer_at(home / "signing.key")
    export_library([relu_kernel()], home / "signed", "kit", signer=signer)
    called = tuner("verify", str(home / "signed"), "--public-key", signer.public_key, "--json")
    assert called.code == 0 and called.document["public_key"] == signer.public_key
    called = tuner("verify", str(home / "signed"), "--public-key", "ed25519:" + "0" * 64)
    assert called.code == 1 and "not by ed25519:0000" in called.err
    assert tuner("verify", str(home / "signed"), "--public-key", "mine").code == 2
