"""Functions written in LLVM IR, for what TVM's IR cannot express.

A pass calls such a function by its name and, unless it is one of `FIXED_FUNCTIONS`,
leaves its text as an attribute of the kernel. Before code generation the text is put
beside the kernels that call it. Functions of one name have one text: where several
kernels of a library define the same, the linker keeps one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tvm
from tvm import tirx
from tvm_ffi import structural_walk

from tuner.runtime.loader import ALIGNMENT

_DEFINITIONS = "tuner.llvm_functions"  # the attribute of a kernel: texts by name


@dataclass(frozen=True, slots=True, kw_only=True)
class LlvmFunction:
    """A function by its name, with the LLVM IR that defines it."""

    name: str
    text: str  # LLVM IR that defines it


# A backslash at the end of a line is no part of the text.
DOT_BFLOAT16 = LlvmFunction(
    name="tuner_dot_bfloat16x16",
    text="""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(\
<16 x float>, <32 x bfloat>, <32 x bfloat>)
define weak_odr hidden <16 x float> @tuner_dot_bfloat16x16(\
<16 x float> %sums, <32 x i16> %left, <32 x i16> %right) alwaysinline {
  %a = bitcast <32 x i16> %left to <32 x bfloat>
  %b = bitcast <32 x i16> %right to <32 x bfloat>
  %added = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(\
<16 x float> %sums, <32 x bfloat> %a, <32 x bfloat> %b)
  ret <16 x float> %added
}
""",
)
_OF_BFLOAT16_ARM = """
declare <4 x float> @llvm.aarch64.neon.{instruction}(<4 x float>, <8 x bfloat>, <8 x bfloat>)
define weak_odr hidden <4 x float> @{name}(\
<4 x float> %sums, <8 x i16> %left, <8 x i16> %right) alwaysinline {{
  %a = bitcast <8 x i16> %left to <8 x bfloat>
  %b = bitcast <8 x i16> %right to <8 x bfloat>
  %added = call <4 x float> @llvm.aarch64.neon.{instruction}(\
<4 x float> %sums, <8 x bfloat> %a, <8 x bfloat> %b)
  ret <4 x float> %added
}}
"""


def _of_bfloat16_arm(name: str, instruction: str) -> LlvmFunction:
    return LlvmFunction(name=name, text=_OF_BFLOAT16_ARM.format(name=name, instruction=instruction))


DOT_BFLOAT16_ARM = _of_bfloat16_arm("tuner_dot_bfloat16x4", "bfdot.v4f32.v8bf16")
MATRICES_BFLOAT16_ARM = _of_bfloat16_arm("tuner_matrices_bfloat16x4", "bfmmla")
# Of the halves of its vectors the instruction takes the lower ones.
MULTIPLY_FLOAT16_ARM = LlvmFunction(
    name="tuner_multiply_float16x4",
    text="""
declare <4 x float> @llvm.aarch64.neon.fmlal.v4f32.v8f16(<4 x float>, <8 x half>, <8 x half>)
define weak_odr hidden <4 x float> @tuner_multiply_float16x4(\
<4 x float> %sums, <4 x half> %left, <4 x half> %right) alwaysinline {
  %a = shufflevector <4 x half> %left, <4 x half> poison, <8 x i32> \
<i32 0, i32 1, i32 2, i32 3, i32 poison, i32 poison, i32 poison, i32 poison>
  %b = shufflevector <4 x half> %right, <4 x half> poison, <8 x i32> \
<i32 0, i32 1, i32 2, i32 3, i32 poison, i32 poison, i32 poison, i32 poison>
  %added = call <4 x float> @llvm.aarch64.neon.fmlal.v4f32.v8f16(\
<4 x float> %sums, <8 x half> %a, <8 x half> %b)
  ret <4 x float> %added
}
""",
)
# LLVM has no vectors of bfloat16 of a length that it is told, so they become such when scalable.
_SCALABLE_DOT = """
declare {sums} @llvm.aarch64.sve.{instruction}({sums}, {factor}, {factor})
define weak_odr hidden <{lanes} x {total}> @{name}(<{lanes} x {total}> %sums, \
<{size} x {bits}> %left, <{size} x {bits}> %right) alwaysinline {{
  %s = call {sums} @llvm.vector.insert.{of_sums}({sums} poison, <{lanes} x {total}> %sums, i64 0)
  %l = call {raw} @llvm.vector.insert.{of_raw}({raw} poison, <{size} x {bits}> %left, i64 0)
  %r = call {raw} @llvm.vector.insert.{of_raw}({raw} poison, <{size} x {bits}> %right, i64 0)
  %x = bitcast {raw} %l to {factor}
  %y = bitcast {raw} %r to {factor}
  %t = call {sums} @llvm.aarch64.sve.{instruction}({sums} %s, {factor} %x, {factor} %y)
  %added = call <{lanes} x {total}> @llvm.vector.extract.{of_total}({sums} %t, i64 0)
  ret <{lanes} x {total}> %added
}}
"""


def _scalable_dot(instruction: str, lanes: int) -> LlvmFunction:
    """The function of SVE's dot product, of vectors as long as LLVM is told that all are."""
    name = f"tuner_scalable_{instruction}x{lanes}"
    of_bfloat16 = instruction == "bfdot"
    total, of = ("float", "f32") if of_bfloat16 else ("i32", "i32")
    bits, number, words, size = (
        ("i16", "bfloat", 8, 2 * lanes) if of_bfloat16 else ("i8", "i8", 16, 4 * lanes)
    )
    text = _SCALABLE_DOT.format(
        name=name,
        instruction=instruction if of_bfloat16 else f"{instruction}.nxv4i32",
        lanes=lanes,
        size=size,
        total=total,
        bits=bits,
        sums=f"<vscale x 4 x {total}>",
        raw=f"<vscale x {words} x {bits}>",
        factor=f"<vscale x {words} x {number}>",
        of_sums=f"nxv4{of}.v{lanes}{of}",
        of_total=f"v{lanes}{of}.nxv4{of}",
        of_raw=f"nxv{words}{bits}.v{size}{bits}",
    )
    return LlvmFunction(name=name, text=text)


# By Arm's name and the lanes of a vector.
SCALABLE_DOTS = {
    (name, lanes): _scalable_dot(name, lanes)
    for name in ("sdot", "udot", "usdot", "bfdot")
    for lanes in (8, 16)
}
# The assembly is empty. LLVM keeps it in its loop, once an iteration, because it cannot
# see what assembly does. Its attributes say that it returns and touches no memory that
# LLVM knows of, so values stay in registers across it.
NO_OPERATION = LlvmFunction(
    name="tuner_nothing",
    text="""
define weak_odr hidden void @tuner_nothing() alwaysinline \
nounwind willreturn nosync memory(inaccessiblemem: readwrite) {
  call void asm sideeffect "", ""() \
nounwind willreturn nosync nocallback memory(inaccessiblemem: readwrite)
  ret void
}
""",
)
_NON_TEMPORAL_STORE = """
define weak_odr hidden void @{name}(ptr %to, <{lanes} x {element}> %values) alwaysinline {{
  store <{lanes} x {element}> %values, ptr %to, align {align}, !nontemporal !0
  ret void
}}
!0 = !{{i32 1}}
"""
# Without signed zeros LLVM needs no instructions that tell -0 from 0.
_EXTREME = """
declare {type} @llvm.{operation}.{suffix}({type}, {type})
define weak_odr hidden {type} @{name}({type} %a, {type} %b) alwaysinline {{
  %extreme = call nsz {type} @llvm.{operation}.{suffix}({type} %a, {type} %b)
  ret {type} %extreme
}}
"""
# LLVM's fence orders ordinary stores. On x86 it becomes mfence or a locked instruction,
# which also wait for non-temporal stores (Intel's Software Developer's Manual, volume 3,
# write combining).
FENCE = LlvmFunction(
    name="tuner_fence",
    text="""
define weak_odr hidden void @tuner_fence() alwaysinline {
  fence seq_cst
  ret void
}
""",
)
FIXED_FUNCTIONS = (
    DOT_BFLOAT16,
    DOT_BFLOAT16_ARM,
    MATRICES_BFLOAT16_ARM,
    MULTIPLY_FLOAT16_ARM,
    NO_OPERATION,
    FENCE,
    *SCALABLE_DOTS.values(),
)
# ldtilecfg takes 64 bytes: the palette (1); from byte 16 on, two bytes a register with the
# bytes of its rows; from byte 48 on, one byte with its rows. arch_prctl(ARCH_REQ_XCOMP_PERM,
# XFEATURE_XTILEDATA) asks Linux for the registers (Documentation/arch/x86/xstate.rst).
_CONFIGURE_AMX = """
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


def amx_configuration(row_bytes: Sequence[int], rows: Sequence[int]) -> LlvmFunction:
    """The function that configures AMX's tile registers: void, without arguments.

    `row_bytes` and `rows` give the shape of each register. In a process' first call the
    function also asks the operating system for the registers.
    """
    data = bytearray(64)
    data[0] = 1
    for register, (width, height) in enumerate(zip(row_bytes, rows, strict=True)):
        data[16 + 2 * register], data[48 + register] = width, height
    name = f"tuner_amx_{bytes([*row_bytes, *rows]).hex()}"
    shapes = "".join(f"\\{value:02X}" for value in data)
    return LlvmFunction(name=name, text=_CONFIGURE_AMX.format(name=name, shapes=shapes))


def non_temporal_store(dtype: str, vector_lanes: int) -> LlvmFunction:
    """The function that stores a vector past the caches: void, of an address and the vector.

    `dtype` is float32 or float64. The address must be a multiple of the vector's size,
    or of a cache line if that is less.
    """
    element, size = {"float32": ("float", 4), "float64": ("double", 8)}[dtype]
    name = f"tuner_stream_{dtype}x{vector_lanes}"
    return LlvmFunction(
        name=name,
        text=_NON_TEMPORAL_STORE.format(
            name=name,
            lanes=vector_lanes,
            element=element,
            align=min(vector_lanes * size, ALIGNMENT),
        ),
    )


def extreme(
    operation: Literal["maximum", "minimum"], dtype: str, vector_lanes: int
) -> LlvmFunction:
    """The function of two vectors that gives the greater or lesser of each pair of elements.

    NaN where either is NaN. `dtype` is float32 or float64; one lane is a scalar.
    """
    element, bits = {"float32": ("float", 32), "float64": ("double", 64)}[dtype]
    vector = vector_lanes > 1
    name = f"tuner_{operation}_{dtype}" + (f"x{vector_lanes}" if vector else "")
    return LlvmFunction(
        name=name,
        text=_EXTREME.format(
            name=name,
            operation=operation,
            type=f"<{vector_lanes} x {element}>" if vector else element,
            suffix=f"v{vector_lanes}f{bits}" if vector else f"f{bits}",
        ),
    )


def with_definitions(function: tirx.PrimFunc, functions: Iterable[LlvmFunction]) -> tirx.PrimFunc:
    """The kernel with the LLVM IR of functions that it calls as an attribute.

    `import_llvm_functions` reads it.
    """
    texts = _definitions(function) | {called.name: called.text for called in functions}
    return function.with_attr(_DEFINITIONS, texts) if texts else function


def called_functions(node: Any) -> list[str]:
    """Names of the external functions that are called below the node, each once."""
    names: dict[str, None] = {}

    def note(call: tvm.ir.Call) -> None:
        if call.args and isinstance(call.args[0], tvm.ir.StringImm):
            names[str(call.args[0].value)] = None

    structural_walk(node, (tvm.ir.Call, note))
    return list(names)


def import_llvm_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the LLVM IR of each function beside the kernel that calls it."""
    fixed = {function.name: function.text for function in FIXED_FUNCTIONS}
    functions = {}
    for name, function in mod.functions.items():
        texts, body = fixed | _definitions(function), function.body
        for called in called_functions(body):
            if called in texts:
                text = tvm.ir.StringImm(texts[called])
                zero = tirx.const(0, "int32")
                body = tirx.AttrStmt(zero, "pragma_import_llvm", text, body)
        functions[name] = function if body is function.body else function.with_body(body)
    return tvm.IRModule(functions, attrs=mod.attrs)


def _definitions(function: tirx.PrimFunc) -> dict[str, str]:
    """LLVM IR by function name, as the kernel's attribute has it."""
    texts = function.attrs.get(_DEFINITIONS) if function.attrs is not None else None
    return {str(name): str(text) for name, text in (texts or {}).items()}
