"""Functions in LLVM IR: only those that are called and defined are brought in."""

from __future__ import annotations

import re

import tvm
from tvm import tirx

from tuner.lowering.llvm_functions import (
    DOT_BFLOAT16,
    LlvmFunction,
    amx_configuration,
    called_functions,
    import_llvm_functions,
    non_temporal_store,
    with_definitions,
)


def calling(*names: str, defined: tuple[LlvmFunction, ...] = ()) -> tvm.IRModule:
    body = tirx.SeqStmt(
        [tirx.Evaluate(tirx.call_extern("void", name)) for name in ("labs", "abs", *names)]
    )
    return tvm.IRModule({"kernel": with_definitions(tirx.PrimFunc([], body), defined)})


def texts(mod: tvm.IRModule) -> list[str]:
    texts, body = [], mod["kernel"].body
    while isinstance(body, tirx.AttrStmt):
        texts.append(str(body.value.value))
        body = body.body
    return texts


def test_shapes_are_where_ldtilecfg_looks_for_them() -> None:
    configuration = amx_configuration([64, 4, 0, 0, 0, 0, 0, 8], [16, 3, 0, 0, 0, 0, 0, 1])
    (text,) = texts(import_llvm_functions(calling(configuration.name, defined=(configuration,))))
    assert text == configuration.text
    written = re.search(r'c"((?:\\[0-9A-F]{2})+)"', text)
    assert written is not None
    data = bytes.fromhex(written[1].replace("\\", ""))
    assert len(data) == 64 and data[0] == 1
    assert [data[16 + 2 * register] for register in range(8)] == [64, 4, 0, 0, 0, 0, 0, 8]
    assert list(data[48:56]) == [16, 3, 0, 0, 0, 0, 0, 1]
    assert sum(data) == 1 + 64 + 4 + 8 + 16 + 3 + 1


def test_functions_of_one_name_have_one_text() -> None:
    shapes = [([64] * 8, [16] * 8), ([64] * 8, [15] * 8), ([4] + [64] * 7, [16] * 8)]
    assert len({amx_configuration(*shape).name for shape in shapes}) == len(shapes)
    stores = [non_temporal_store(dtype, 8) for dtype in ("float32", "float64")]
    assert stores[0].name != stores[1].name


def test_only_what_is_called_and_defined_is_brought_in() -> None:
    assert texts(import_llvm_functions(calling())) == []
    name, store = DOT_BFLOAT16.name, non_temporal_store("float32", 16)
    assert called_functions(calling(name, name)["kernel"].body) == ["labs", "abs", name]
    assert texts(import_llvm_functions(calling(name, name))) == [DOT_BFLOAT16.text]
    assert texts(import_llvm_functions(calling(name, defined=(store,)))) == [DOT_BFLOAT16.text]
    assert texts(import_llvm_functions(calling(store.name))) == []


def test_definitions_add_up() -> None:
    stores = [non_temporal_store("float32", lanes) for lanes in (8, 16)]
    function = calling(*(store.name for store in stores))["kernel"]
    for store in stores:
        function = with_definitions(function, [store])
    module = import_llvm_functions(tvm.IRModule({"kernel": function}))
    assert set(texts(module)) == {store.text for store in stores}
