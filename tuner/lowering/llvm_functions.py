"""Functions in LLVM's own language, for what TVM has no word for: brought into the
kernels that call them by their names.

A name says all that its function does. Where several kernels of one library have the
same, the linker keeps one.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_walk

from tuner.spaces.cpu.amx import REGISTERS
from tuner.target.target import LINE_BYTES

DOT_BFLOAT16 = "tuner_dot_bfloat16x16"
NOTHING = "tuner_nothing"
FENCE = "tuner_fence"
_SHAPES, _STREAM = "tuner_amx_", "tuner_stream_"
_DOT_BFLOAT16 = f"""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define weak_odr hidden <16 x float> @{DOT_BFLOAT16}(<16 x float> %sums, <32 x i16> %one, <32 x i16> %other) alwaysinline {{
  %a = bitcast <32 x i16> %one to <32 x bfloat>
  %b = bitcast <32 x i16> %other to <32 x bfloat>
  %added = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %sums, <32 x bfloat> %a, <32 x bfloat> %b)
  ret <16 x float> %added
}}
"""  # noqa: E501
# The assembly is empty. Because it may do what LLVM does not see it stays in its loop,
# once an iteration; that it always returns and touches no memory that LLVM knows of
# lets values live in registers across it.
_NOTHING = f"""
define weak_odr hidden void @{NOTHING}() alwaysinline nounwind willreturn nosync memory(inaccessiblemem: readwrite) {{
  call void asm sideeffect "", ""() nounwind willreturn nosync nocallback memory(inaccessiblemem: readwrite)
  ret void
}}
"""  # noqa: E501
_STREAMING_STORE = """
define weak_odr hidden void @{name}(ptr %to, <{lanes} x {element}> %values) alwaysinline {{
  store <{lanes} x {element}> %values, ptr %to, align {align}, !nontemporal !0
  ret void
}}
!0 = !{{i32 1}}
"""
# LLVM orders only what is stored as ever by it; what x86 has for the strongest fence,
# mfence or a locked instruction, waits until what goes past the caches is written too
# (Intel's Software Developer's Manual, volume 3, write combining).
_FENCE = f"""
define weak_odr hidden void @{FENCE}() alwaysinline {{
  fence seq_cst
  ret void
}}
"""
# ldtilecfg takes 64 bytes: palette 1, from byte 16 two bytes a register for those of
# its rows, from byte 48 one for its rows. arch_prctl(ARCH_REQ_XCOMP_PERM,
# XFEATURE_XTILEDATA) asks Linux for the registers (Documentation/arch/x86/xstate.rst).
_SHAPE_REGISTERS = """
@{name}_shapes = weak_odr hidden constant [64 x i8] c"{shapes}", align 64
@{name}_asked = weak_odr hidden global i8 0
declare i64 @syscall(i64, ...)
declare void @llvm.x86.ldtilecfg(ptr)
define weak_odr hidden void @{name}() alwaysinline {{
  %asked = load i8, ptr @{name}_asked
  %first = icmp eq i8 %asked, 0
  br i1 %first, label %ask, label %configure
ask:
  %answer = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  store i8 1, ptr @{name}_asked
  br label %configure
configure:
  call void @llvm.x86.ldtilecfg(ptr @{name}_shapes)
  ret void
}}
"""


def amx_shapes(row_bytes: list[int], rows: list[int]) -> str:
    """The function that gives AMX's registers their shapes, asking for them in a
    process' first call; void, without arguments."""
    return _SHAPES + bytes([*row_bytes, *rows]).hex()


def shapes_amx(name: str) -> bool:
    return name.startswith(_SHAPES)


def streaming_store(dtype: str, lanes: int) -> str:
    """The function that stores a vector past the caches, where it begins at a multiple
    of its size or of a cache line; void, of an address and the vector. `dtype`: float32
    or float64."""
    return f"{_STREAM}{dtype}x{lanes}"


def called_functions(node: Any) -> list[str]:
    """Names of foreign functions that are called below the node, each once."""
    found: dict[str, None] = {}

    def note(call: tvm.ir.Call) -> None:
        if call.args and isinstance(call.args[0], tvm.ir.StringImm):
            found[str(call.args[0].value)] = None

    structural_walk(node, (tvm.ir.Call, note))
    return list(found)


def bring_in_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the text of each of these functions beside the kernel that calls it."""
    functions = {}
    for name, function in mod.functions.items():
        body = function.body
        for wanted in called_functions(body):
            text = _text(wanted)
            if text is not None:
                body = tirx.AttrStmt(
                    tirx.const(0, "int32"), "pragma_import_llvm", tvm.ir.StringImm(text), body
                )
        functions[name] = function if body is function.body else function.with_body(body)
    return tvm.IRModule(functions, attrs=mod.attrs)


def _text(name: str) -> str | None:
    if name == NOTHING:
        return _NOTHING
    if name == DOT_BFLOAT16:
        return _DOT_BFLOAT16
    if name == FENCE:
        return _FENCE
    if name.startswith(_STREAM):
        return _streaming_store(name)
    if not shapes_amx(name):
        return None
    sizes = bytes.fromhex(name.removeprefix(_SHAPES))
    data = bytearray(64)
    data[0] = 1
    for register in range(REGISTERS):
        data[16 + 2 * register], data[48 + register] = sizes[register], sizes[REGISTERS + register]
    return _SHAPE_REGISTERS.format(name=name, shapes="".join(f"\\{value:02X}" for value in data))


def _streaming_store(name: str) -> str:
    dtype, lanes = name.removeprefix(_STREAM).split("x")
    element, size = {"float32": ("float", 4), "float64": ("double", 8)}[dtype]
    return _STREAMING_STORE.format(
        name=name, lanes=lanes, element=element, align=min(int(lanes) * size, LINE_BYTES)
    )
