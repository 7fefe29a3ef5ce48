"""Libraries for CPUs that are not here: what is exported, and its examples under QEMU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.emulated import emulator, needs
from tuner.cli.entry import program
from tuner.runtime.link import toolchain_for
from tuner.target.detect import parse_target

DEMO = Path(__file__).parents[2] / "examples/demo"
SPECS = ("matmul:M=33,N=40,K=24", "softmax:M=5,N=53", "dense:M=9,N=24,K=40,dtype=int8")


def exported(tmp_path: Path, *words: str) -> tuple[int, str]:
    environment = {"TUNER_DATA_DIR": str(tmp_path / "data")}
    done = CliRunner().invoke(program(), ["--json", "export", *words], env=environment)
    return done.exit_code, done.output + str(done.exception or "")


@pytest.mark.parametrize("name", ["neoverse-n1", "rv64gcv"])
def test_the_examples_of_an_unmeasured_library_are_right_under_emulation(
    name: str, tmp_path: Path
) -> None:
    needs(name)
    kit, target = tmp_path / "kit", parse_target(f"cpu:{name}")
    code, output = exported(
        tmp_path, *SPECS, "--target", f"cpu:{name}", "-o", str(kit), "--name", "kit"
    )
    assert code == 0, output
    manifest = json.loads((kit / "manifest.json").read_text())
    for function in manifest["functions"]:
        assert (function["measured"], function["verified"], function["median_s"]) == (
            False,
            False,
            0.0,
        )
        assert function["target"]["name"] == f"cpu:{name}"
    tools = toolchain_for(target)
    assert f"{tools.prefix}gcc" in (kit / "cmake/toolchain.cmake").read_text()
    subprocess.run(
        [*tools.command, str(kit / "examples/example.c"), f"-I{kit}/include",
         str(kit / "lib/libkit.a"), "-lm", "-lpthread", "-o", str(tmp_path / "example")],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [*emulator(target), str(tmp_path / "example")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("elements checked") == len(SPECS)


@pytest.mark.long
@pytest.mark.parametrize("name", ["neoverse-n1", "neoverse-v2", "rv64gcv"])
def test_the_demos_program_is_right_under_emulation(name: str, tmp_path: Path) -> None:
    """It checks each element of a product of 512 and of an MLP by loops of its own."""
    needs(name)
    kit, tools = tmp_path / "kit", toolchain_for(parse_target(f"cpu:{name}"))
    code, output = exported(
        tmp_path, "matmul:M=512,N=512,K=512", "--notation", str(DEMO / "mlp.kernel"),
        "--shapes", "M=127,N=251,K=193", "--target", f"cpu:{name}", "-o", str(kit),
        "--name", "demo",
    )  # fmt: skip
    assert code == 0, output
    subprocess.run(
        [*tools.command, "-O2", str(DEMO / "main.c"), f"-I{kit}/include",
         str(kit / "lib/libdemo.a"), "-lm", "-lpthread", "-o", str(tmp_path / "main")],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [*emulator(parse_target(f"cpu:{name}")), str(tmp_path / "main")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", right") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--all"], "--all is for kernels that were tuned"),
        ([SPECS[0], "--for", "torch"], "--for is for kernels that were tuned"),
        ([SPECS[0], "--format", "tvmscript"], "--format is for kernels that were tuned"),
        ([SPECS[0], "--within", "0"], "--within is for kernels that were tuned"),
        (["0197aa55"], "exported by its id, without --target"),
        ([], "no workload was given"),
    ],
)
def test_what_needs_a_tuned_kernel_is_refused_beside_a_target(
    words: list[str], said: str, tmp_path: Path
) -> None:
    kit = tmp_path / "kit"
    code, output = exported(tmp_path, *words, "--target", "cpu:neoverse-n1", "-o", str(kit))
    assert code != 0 and said in output and not kit.exists()


def test_a_notation_without_a_target_is_refused(tmp_path: Path) -> None:
    kernel = str(DEMO / "mlp.kernel")
    code, output = exported(tmp_path, "--notation", kernel, "-o", str(tmp_path / "kit"))
    assert code != 0 and "add --target cpu:NAME" in output


@pytest.mark.parametrize(
    ("target", "said"),
    [("cpu", "only kernels for a declared CPU"), ("cpu:neoverse", "unknown target")],
)
def test_other_targets_are_refused_and_nothing_is_written(
    target: str, said: str, tmp_path: Path
) -> None:
    code, output = exported(tmp_path, SPECS[0], "--target", target, "-o", str(tmp_path / "kit"))
    assert code != 0 and said in output
    assert not (tmp_path / "kit").exists()
