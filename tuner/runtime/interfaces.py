"""What a library shows to frameworks besides its C functions: symbols that they look up.

Each is C of its own around the same functions, and needs nothing of the framework to be
compiled or loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Interface:
    """How one framework calls the functions of a library."""

    source: str  # of the runtime's C files
    header: str
    symbol: str = ""  # of a function, where it has one, with `{symbol}` for its name in C
    function: str = ""  # C text of it; `{name}` is that symbol, `{index}` of the function's table
    library: str = ""  # C text of the whole library, after those; `{name}` is its name
    entry: str = ""  # the symbol of the library that the framework looks up

    def symbols(self, functions: Sequence[str]) -> list[str]:
        """What the linker shows of a library with these functions."""
        named = [self.symbol.format(symbol=symbol) for symbol in functions] if self.symbol else []
        return [*named, *([self.entry] if self.entry else [])]

    def text(self, name: str, functions: Sequence[str]) -> str:
        """The C text for a library of that name, after the tables of its functions."""
        each = "".join(
            self.function.format(index=index, name=self.symbol.format(symbol=symbol))
            for index, symbol in enumerate(functions)
        )
        return each + self.library.format(name=name)


TVM_FFI = Interface(
    source="tvm_ffi.c",
    header="tvm_ffi.h",
    symbol="__tvm_ffi_{symbol}",
    function=(
        "TUNER_EXPORT int {name}(void *self, const TunerAny *arguments, int32_t count, "
        "TunerAny *result) {{\n"
        "  (void)self;\n"
        "  return tuner_call_tvm_ffi(&function_{index}, arguments, count, result);\n}}\n"
    ),
)

XLA_FFI = Interface(
    source="xla_ffi.c",
    header="xla_ffi.h",
    symbol="__xla_ffi_{symbol}",
    function=(
        "TUNER_EXPORT void *{name}(struct tuner_xla_frame *frame) {{\n"
        "  return tuner_call_xla(&function_{index}, frame);\n}}\n"
    ),
)

ONNX_RUNTIME = Interface(
    source="onnxruntime.c",
    header="onnxruntime.h",
    library=(
        "static struct tuner_ort_function operators[sizeof functions / sizeof functions[0]];\n"
        "TUNER_EXPORT void *RegisterCustomOps(void *options, const struct tuner_ort_base *base)\n"
        "{{\n"
        '  return tuner_register_ort(options, base, "{name}", functions, operators,\n'
        "                            sizeof functions / sizeof functions[0]);\n}}\n"
    ),
    entry="RegisterCustomOps",
)

DLPACK_EXCHANGE = Interface(
    source="dlpack_exchange.c",
    header="dlpack_exchange.h",
    symbol="__dlpack_exchange_{symbol}",
    function=(
        "TUNER_EXPORT void *{name}(void *self, void *const *tensors, intptr_t count) {{\n"
        "  return tuner_call_exchange(&function_{index}, self, tensors, count);\n}}\n"
    ),
)

_SHARED_SOURCE, _SHARED_HEADER = "tensors.c", "tensors.h"


def sources_of(interfaces: Sequence[Interface]) -> list[str]:
    """The runtime's C files that they are made of."""
    shared = [_SHARED_SOURCE] if interfaces else []
    return [*shared, *(interface.source for interface in interfaces)]


def headers_of(interfaces: Sequence[Interface]) -> list[str]:
    """The headers that these files include."""
    shared = [_SHARED_HEADER] if interfaces else []
    return [*shared, *(interface.header for interface in interfaces)]
