"""Exports for WebAssembly: module, loader and example under Node, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.emulated import needs
from tuner.cli.entry import program

SPECS = (
    "matmul:M=33,N=40,K=24",
    "softmax:M=5,N=53",
    "embedding:N=7,V=31,D=19",
    "dense:M=9,N=24,K=40,dtype=bfloat16",
    "conv2d:N=1,H=8,W=8,CI=8,CO=16,KH=3,KW=3,pad=1,const=W",
    "spmv:M=16,N=16,density=0.2",
)
MATMUL = "matmul_m33_n40_k24"
# What the calls of the loader throw: name, status, text.
CALLS = """
import { load } from "@kit@";
const kit = await load();
const { inputs, outputs } = kit.matmul_m33_n40_k24;
const caught = {};
const attempt = (name, call) => {
  try { caught[name] = ["", 0, String(call())]; }
  catch (error) { caught[name] = [error.name, error.status ?? 0, error.message]; }
};
const a = new Float32Array(33 * 24).fill(1), b = new Float32Array(24 * 40).fill(2);
attempt("right", () => kit.matmul_m33_n40_k24(a, b)[0]);
attempt("few", () => kit.matmul_m33_n40_k24(a));
attempt("short", () => kit.matmul_m33_n40_k24(a, b.subarray(1)));
attempt("kind", () => kit.matmul_m33_n40_k24(a, new Float64Array(24 * 40)));
attempt("list", () => kit.matmul_m33_n40_k24(a, Array.from(b)));
attempt("rows", () => {
  const sparse = Object.entries(kit).find(([name]) => name.startsWith("spmv"))[1];
  const given = sparse.inputs.map(({ dtype, shape }) => {
    return dtype === "float32" ? new Float32Array(shape[0]) : new Int32Array(shape[0]).fill(3);
  });
  return sparse(...given).length;
});
console.log(JSON.stringify({ caught, inputs, outputs }));
"""
# Blocks at random, each filled with its number: none may touch another, and memory must come back.
MEMORY = """
import { instantiate } from "@kit@";
const exports = await instantiate();
const first = exports.memory.buffer.byteLength;
let state = 1;
const random = (count) => ((state = (Math.imul(state, 1103515245) + 12345) >>> 0) >>> 8) % count;
const held = [];
let wrong = 0;
const view = ({ address, size }) => new Uint8Array(exports.memory.buffer, address, size);
for (let number = 0; number < 5000; number += 1) {
  if (held.length && random(2)) {
    const [block] = held.splice(random(held.length), 1);
    wrong += view(block).some((byte) => byte !== block.mark);
    exports.kit_free(block.address);
  } else {
    const block = { size: random(random(8) ? 3000 : 200000), mark: number % 251 };
    block.address = exports.kit_alloc(block.size) >>> 0;
    wrong += block.address === 0 || block.address % 64 !== 0;
    view(block).fill(block.mark);
    held.push(block);
  }
}
for (const block of held) exports.kit_free(block.address);
const before = exports.memory.buffer.byteLength;
const whole = exports.kit_alloc(before - first - 64) >>> 0; // all but a block's own line
const grown = exports.memory.buffer.byteLength - before;
const none = exports.kit_alloc(0xffffffff) >>> 0;
const bytes = new Uint8Array(exports.memory.buffer, exports.kit_last_error());
const text = new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
console.log(JSON.stringify({ wrong, whole, grown, none, text }));
"""


def command(tmp_path: Path, *words: str) -> tuple[int, str]:
    environment = {"TUNER_DATA_DIR": str(tmp_path / "data")}
    done = CliRunner().invoke(program(), ["--json", *words], env=environment)
    return done.exit_code, done.output + str(done.exception or "")


def run(script: str, kit: Path) -> Any:
    text = script.replace("@kit@", (kit / "kit.mjs").as_uri())
    done = subprocess.run(
        ["node", "--input-type=module", "-e", text], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("wasm32")
    folder = tmp_path_factory.mktemp("module")
    code, output = command(
        folder, "export", *SPECS, "--target", "cpu:wasm32", "-o", str(folder / "kit"),
        "--name", "kit",
    )  # fmt: skip
    assert code == 0, output
    return folder / "kit"


def test_the_example_of_a_module_is_right(kit: Path) -> None:
    done = subprocess.run(
        ["node", "examples/example.mjs"], cwd=kit, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("elements of") == len(SPECS)
    files = {path.relative_to(kit).as_posix() for path in kit.rglob("*") if path.is_file()}
    assert files == {
        "manifest.json", "manifest.sig", "kit.wasm", "kit.mjs", "examples/example.mjs",
        "examples/expected.json",
    }  # fmt: skip
    manifest = json.loads((kit / "manifest.json").read_text())
    assert manifest["library"] == "kit.wasm"
    for function in manifest["functions"]:
        assert (function["measured"], function["verified"]) == (False, False)


def test_a_wrong_element_fails_the_example(kit: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(kit, tmp_path / "kit")
    path = copy / "examples/expected.json"
    expected = json.loads(path.read_text())
    expected[MATMUL]["samples"][0][3][1] += 0.5
    path.write_text(json.dumps(expected))
    done = subprocess.run(["node", "examples/example.mjs"], cwd=copy, check=False)
    assert done.returncode == 1


def test_calls_are_checked(kit: Path) -> None:
    answer = run(CALLS, kit)
    caught = answer["caught"]
    assert caught["right"] == ["", 0, "48"]
    assert caught["few"][0] == "RangeError" and "takes 2 arrays (A, B), not 1" in caught["few"][2]
    assert caught["short"][0] == "RangeError" and "959 elements" in caught["short"][2]
    for case in ("kind", "list"):
        assert caught[case][0] == "TypeError" and "give a Float32Array" in caught[case][2]
    assert caught["rows"][:2] == ["KernelError", 9]
    assert caught["rows"][2].endswith("[0] is 3; the first row begins at 0")
    assert [(t["name"], t["dtype"], t["shape"]) for t in answer["outputs"]] == [
        ("C", "float32", [33, 40])
    ]


def test_memory_comes_back_and_no_two_blocks_touch(kit: Path) -> None:
    answer = run(MEMORY, kit)
    assert answer["wrong"] == 0 and answer["whole"] and answer["grown"] == 0
    assert answer["none"] == 0 and answer["text"] == "no memory for a buffer of 4294967295 bytes"


def test_a_module_is_not_verified_here(kit: Path, tmp_path: Path) -> None:
    code, output = command(tmp_path, "verify", str(kit))
    assert code != 0 and "node" in output and "examples/example.mjs" in output
    copy = Path(shutil.copytree(kit, tmp_path / "copy"))
    (copy / "kit.wasm").write_bytes((copy / "kit.wasm").read_bytes() + b"\0")
    code, output = command(tmp_path, "verify", str(copy))
    assert code != 0 and "kit.wasm was altered" in output


@pytest.mark.parametrize("words", [[], ["--device", "ssh pi ./tuner-agent"]])
def test_tuning_is_refused_with_the_way_out(words: list[str], tmp_path: Path) -> None:
    code, output = command(tmp_path, "tune", SPECS[0], "--target", "cpu:wasm32", *words)
    assert code != 0 and "tuner export SPEC --target cpu:wasm32 -o DIR" in output


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("matmul:M=8,N=8,K=8,dtype=float16", "float16 needs instructions that cpu:wasm32 lacks"),
        ("elementwise:M=32768,N=32768,act=relu", "a module's memory ends at 4294967296"),
    ],
)
def test_what_a_module_cannot_have_is_refused(spec: str, said: str, tmp_path: Path) -> None:
    needs("wasm32")
    code, output = command(
        tmp_path, "export", spec, "--target", "cpu:wasm32", "-o", str(tmp_path / "kit")
    )
    assert code != 0 and said in output and not (tmp_path / "kit").exists()
