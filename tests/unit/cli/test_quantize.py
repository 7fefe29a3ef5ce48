"""`tuner quantize`: a file goes in, a file and tables come out, or one line of refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support import float_networks as nets
from tests.support.promoted_products import promote_products
from tuner.cli.exits import Exit
from tuner.db.engine import open_database
from tuner.settings import load_settings
from tuner.target.detect import parse_target


@pytest.fixture
def work(home: Path) -> Path:
    """A folder with a network and data for it, where commands run."""
    folder, rng = home / "work", np.random.default_rng(0)
    (folder / "net.onnx").write_bytes(nets.images(rng))
    np.savez(folder / "data.npz", x=rng.standard_normal((8, 3, 9, 9)))
    (folder / "empty").mkdir()
    return folder


@pytest.mark.slow
def test_a_file_and_what_each_layer_loses(tuner: Callable[..., Any], work: Path) -> None:
    called = tuner("quantize", "net.onnx", "--calibrate", "data.npz", "-o", "small.onnx")
    assert called.code == Exit.OK
    assert "GlobalAveragePool" in called.out and "the file" in called.out
    assert "small.onnx: 9 of 9 layers are integers" in called.out
    assert "ranges are of 8 rows" in called.err
    onnx.checker.check_model(onnx.load(work / "small.onnx"))
    again = tuner("quantize", "small.onnx", "--calibrate", "data.npz", "-o", "x.onnx")
    assert again.code == Exit.USAGE and "quantised already" in again.err


@pytest.mark.slow
def test_json_has_all_of_it(tuner: Callable[..., Any], work: Path) -> None:
    called = tuner(
        "quantize", "net.onnx", "--calibrate", "data.npz", "-o", "small.onnx", "--keep", "c1",
        "--method", "percentile", "--json",
    )  # fmt: skip
    document = called.document
    assert document["file"] == "small.onnx"
    assert document["left"] == [{"name": "c1", "op": "Conv", "reason": "is kept as asked"}]
    assert {*document["layers"][0]} == {
        "name", "op", "loss", "float_bytes", "nbytes", "quantized",
    }  # fmt: skip
    assert [choice["chosen"] for choice in document["choices"]].count(True) == 1


@pytest.mark.slow
def test_times_come_from_the_kernels_measured_so_far(tuner: Callable[..., Any], work: Path) -> None:
    def called(*flags: str) -> Any:
        return tuner("quantize", "net.onnx", "--calibrate", "data.npz", "-o", "x.onnx", *flags)

    unknown = called("--times")
    assert unknown.code == Exit.OK and "no times: " in unknown.err
    database = open_database(load_settings().values.db)
    promote_products(database, parse_target("cpu"))
    database.close()
    choices = called("--times", "--json").document["choices"]
    assert choices[-1]["floats"] == 9 and all(choice["time_s"] > 0 for choice in choices)
    said = called("--times")
    assert "constants" in said.out and "time" in said.out
    assert "time" not in called().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.onnx"], ["missing.onnx", "is no file"]),
        (["data.npz"], ["both must be .onnx files"]),
        (["net.onnx", "-o", "net.onnx"], ["the model itself"]),
        (["net.onnx", "-o", "nowhere/small.onnx"], ["nowhere is no folder"]),
        (["net.onnx", "--calibrate", "empty"], ["empty", "numpy.savez"]),
        (["net.onnx", "--calibrate", "net.onnx"], ["no .npz file"]),
        (["net.onnx", "--method", "best"], ["'best'", "max, percentile, entropy"]),
        (["net.onnx", "--method", "percentile", "--percentile", "101"], ["101", "50 to 100"]),
        (["net.onnx", "--percentile", "99"], ["99", "belongs to --method percentile"]),
        (["net.onnx", "--max-loss", "nan"], ["nan", "0 to 1"]),
        (["net.onnx", "--rows", "0"], ["0", "1 to 1048576"]),
        (["net.onnx", "--seconds", "1000"], ["1000", "300"]),
        (["net.onnx", "--threads", "2"], ["--threads 2", "--times"]),
        (["net.onnx", "--keep", "zz"], ["net.onnx", "'zz'", "such as"]),
    ],
)
def test_what_cannot_be_quantised_is_refused_in_one_line(
    tuner: Callable[..., Any], work: Path, arguments: list[str], says: list[str]
) -> None:
    given = [*arguments]
    for flag, value in (("--calibrate", "data.npz"), ("-o", "small.onnx")):
        given += [] if flag in given else [flag, value]
    called = tuner("quantize", *given)
    assert called.code == Exit.USAGE and called.out == ""
    assert [words for words in says if words not in called.err] == []
    assert called.err.startswith("error: ") and called.err.count("\n") == 1
    assert sorted(path.name for path in work.iterdir()) == ["data.npz", "empty", "net.onnx"]
