"""Constants in files beside an ONNX file: read inside its folder only, through the fence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support import onnx_networks as nets
from tests.support.depth import thinned
from tuner.models.errors import ModelRefused
from tuner.models.files.onnx_file import ModelLimits, read_model
from tuner.models.importer import import_file, import_model, read_file
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph


def saved(folder: Path, location: str = "net.data") -> Any:
    """A perceptron whose constants lie in a file of their own; the model without its data."""
    model = nets.perceptron(rows=2, sizes=(4, 8, 3))
    onnx.save_model(
        model, folder / "net.onnx", save_as_external_data=True, location=location, size_threshold=0
    )
    return onnx.load(folder / "net.onnx", load_external_data=False)


def entry(model: Any, key: str, place: int = 0) -> Any:
    return next(e for e in model.graph.initializer[place].external_data if e.key == key)


def test_the_data_is_read_and_computes_the_same(tmp_path: Path) -> None:
    saved(tmp_path)
    plain = nets.perceptron(rows=2, sizes=(4, 8, 3))
    (given,) = nets.feeds(plain).values()
    graphs = [import_file(tmp_path / "net.onnx"), import_model(nets.serialized(plain))]
    first, second = (evaluate_graph(g, [given])[g.outputs[0]] for g in graphs)
    np.testing.assert_array_equal(first, second)
    read_graph(read_file(tmp_path / "net.onnx"), {})  # needs no other file any more


def test_folders_below_narrow_types_and_constants_of_operators_count(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    numbers = np.arange(-8, 8)
    packed = ((numbers[::2] & 15) | ((numbers[1::2] & 15) << 4)).astype(np.uint8)
    (tmp_path / "deep" / "er" / "w").write_bytes(b"....." + packed.tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.INT4, dims=[16])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "deep/er/w", "offset": "5", "length": "8"}.items():
        tensor.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=tensor),
        helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [16])
    unused = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    made = helper.make_model(helper.make_graph(nodes, "g", [unused], [output]))
    (tmp_path / "net.onnx").write_bytes(made.SerializeToString())
    model = onnx.ModelProto.FromString(read_file(tmp_path / "net.onnx"))
    array = numpy_helper.to_array(model.graph.node[0].attribute[0].t)
    np.testing.assert_array_equal(array.astype(np.int64), numbers)


def _location(name: str) -> Callable[[Path, Any], None]:
    def change(folder: Path, model: Any) -> None:
        entry(model, "location").value = name

    return change


def _value(key: str, value: str) -> Callable[[Path, Any], None]:
    def change(folder: Path, model: Any) -> None:
        entry(model, key).value = value

    return change


def _link(folder: Path, model: Any) -> None:
    (folder / "net.data").rename(folder.parent / "elsewhere.data")
    (folder / "net.data").symlink_to(folder.parent / "elsewhere.data")


def _linked_folder(folder: Path, model: Any) -> None:
    (folder / "sub").symlink_to("/etc")
    entry(model, "location").value = "sub/passwd"


def _pipe(folder: Path, model: Any) -> None:
    (folder / "net.data").unlink()
    os.mkfifo(folder / "net.data")


def _folder(folder: Path, model: Any) -> None:
    (folder / "net.data").unlink()
    (folder / "net.data").mkdir()


def _missing(folder: Path, model: Any) -> None:
    (folder / "net.data").unlink()


def _short(folder: Path, model: Any) -> None:
    content = (folder / "net.data").read_bytes()
    (folder / "net.data").write_bytes(content[:-1])


def _huge(folder: Path, model: Any) -> None:
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend([1 << 30, 1 << 30])


def _untyped(folder: Path, model: Any) -> None:
    model.graph.initializer[0].data_type = 99


CASES: dict[str, tuple[Callable[[Path, Any], None], str]] = {
    "another folder": (_location("../net.data"), "no file of the model's folder"),
    "an absolute path": (_location("/etc/passwd"), "no file of the model's folder"),
    "a folder and back": (_location("a/../../net.data"), "no file of the model's folder"),
    "no name": (_location(""), "no file of the model's folder"),
    "the folder itself": (_location("."), "no file of the model's folder"),
    "another name": (_location("other.data"), "does not exist"),
    "a link": (_link, "by a link"),
    "a folder that is a link": (_linked_folder, "by a link"),
    "a pipe": (_pipe, "is no file with data"),
    "a folder": (_folder, "is no file with data"),
    "a file that is gone": (_missing, "does not exist"),
    "a short file": (_short, "the file has"),
    "an offset behind the end": (_value("offset", "99999999"), "the file has"),
    "an offset that is none": (_value("offset", "-1"), "no number of bytes"),
    "a length that is none": (_value("length", "12e3"), "no number of bytes"),
    "another length": (_value("length", "4"), "4 bytes of data; its shape takes"),
    "a huge shape": (_huge, "which is none"),
    "no type": (_untyped, "unknown type 99"),
}


@pytest.mark.parametrize("case", thinned(CASES, 6, pytest.mark.slow))
def test_each_is_refused_naming_constant_and_file(case: str, tmp_path: Path) -> None:
    change, text = CASES[case]
    folder = tmp_path / "inside"
    folder.mkdir()
    model = saved(folder)
    (tmp_path / "net.data").write_bytes(bytes(4096))
    change(folder, model)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    names = [tensor.name for tensor in model.graph.initializer]
    with pytest.raises(ModelRefused, match=r"net\.onnx: constant") as refused:
        import_file(folder / "net.onnx")
    assert text in str(refused.value)
    assert any(f"constant {name!r}" in str(refused.value) for name in names)
    assert len(str(refused.value)) < 600


def test_bytes_without_their_folder_are_refused_with_the_way_out(tmp_path: Path) -> None:
    """As they come over REST."""
    model = saved(tmp_path)
    with pytest.raises(ModelRefused, match="save the model with its data inside"):
        read_graph(model.SerializeToString(), {})


def test_large_constants_are_not_lost_in_checking() -> None:
    """Those above 64 KiB are put aside while the model is checked."""
    model = nets.perceptron(rows=2, sizes=(4, 8192, 3))
    read = read_model(model.SerializeToString(), {})
    assert [value.name for value in read.graph.input] == ["x"]
    assert {t.name: t.raw_data for t in read.graph.initializer} == {
        t.name: t.raw_data for t in model.graph.initializer
    }
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(ModelRefused, match="not valid ONNX"):
        read_model(model.SerializeToString(), {})
    with pytest.raises(ModelRefused, match="the limit is 1000"):
        read_model(model.SerializeToString(), {}, ModelLimits(nbytes=1000))
