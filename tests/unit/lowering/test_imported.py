"""Functions in LLVM's language: the name tells the text, and only what is known is brought in."""

from __future__ import annotations

import re

import tvm
from tvm import tirx

from tuner.lowering.llvm_functions import (
    DOT_BFLOAT16,
    amx_shapes,
    bring_in_functions,
    called_functions,
    shapes_amx,
)


def calling(*names: str) -> tvm.IRModule:
    body = tirx.SeqStmt(
        [tirx.Evaluate(tirx.call_extern("void", name)) for name in ("labs", "abs", *names)]
    )
    return tvm.IRModule({"kernel": tirx.PrimFunc([], body)})


def texts(mod: tvm.IRModule) -> list[str]:
    found, body = [], mod["kernel"].body
    while isinstance(body, tirx.AttrStmt):
        found.append(str(body.value.value))
        body = body.body
    return found


def test_shapes_are_where_ldtilecfg_looks_for_them() -> None:
    name = amx_shapes([64, 4, 0, 0, 0, 0, 0, 8], [16, 3, 0, 0, 0, 0, 0, 1])
    assert shapes_amx(name)
    (text,) = texts(bring_in_functions(calling(name)))
    written = re.search(r'c"((?:\\[0-9A-F]{2})+)"', text)
    assert written is not None
    data = bytes.fromhex(written[1].replace("\\", ""))
    assert len(data) == 64 and data[0] == 1
    assert [data[16 + 2 * register] for register in range(8)] == [64, 4, 0, 0, 0, 0, 0, 8]
    assert list(data[48:56]) == [16, 3, 0, 0, 0, 0, 0, 1]
    assert sum(data) == 1 + 64 + 4 + 8 + 16 + 3 + 1


def test_only_what_is_called_and_known_is_brought_in() -> None:
    assert texts(bring_in_functions(calling())) == []
    assert called_functions(calling(DOT_BFLOAT16, DOT_BFLOAT16)["kernel"].body) == [
        "labs",
        "abs",
        DOT_BFLOAT16,
    ]
    (text,) = texts(bring_in_functions(calling(DOT_BFLOAT16, DOT_BFLOAT16)))
    assert DOT_BFLOAT16 in text
