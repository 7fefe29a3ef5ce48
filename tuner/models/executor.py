"""The C source of a model's executor, which calls the kernels in order.

The kernels work on the caller's buffers, the library's constants and one arena. The
executor has the calling convention of a compiled kernel, so a model is linked, checked,
timed and exported as a kernel is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.models.memory import Place
from tuner.runtime.wrapper import Entry, kernel_tables

_CLOCK = (
    "  int64_t *spent = (int64_t *)at[{last}];\n  struct timespec then, now;\n  "
    "clock_gettime(CLOCK_MONOTONIC, &then);\n"
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """The call of one kernel."""

    kernel: int  # position among the kernels
    buffers: tuple[Place, ...]  # its arguments in order


@dataclass(frozen=True, kw_only=True)
class Copy:
    """An output that is another tensor: an input, a constant, or another output."""

    output: int
    source: Place
    nbytes: int


def constants_symbol(entry: str) -> str:
    """The symbol at which the constants of the model with this entry begin.

    It has the entry's name in it because one library may hold several models.
    """
    return f"{entry}_constants"


def executor(
    entry: str,
    *,
    kernels: Sequence[Entry],
    steps: Sequence[Step],
    copies: Sequence[Copy],
    arena_bytes: int,
    inputs: int,
    outputs: int,
    machine: str,
    profiled: bool = False,
) -> str:
    """C source with one function, the packed entry `entry`.

    It takes no lock. Its memory is the workspace of the calling thread. With `profiled`
    it writes the nanoseconds of each step, as int64, into its last output.
    """
    tables = "".join(
        kernel_tables(str(index), kernel, machine) for index, kernel in enumerate(kernels)
    )
    constants = constants_symbol(entry)
    calls = "".join(
        _call(step, inputs, constants) + (_clocked(number) if profiled else "")
        for number, step in enumerate(steps)
    )
    sources = [_address(copy.source, inputs, constants) for copy in copies]
    copied = "".join(
        f"    memcpy(at[{inputs + copy.output}], {source}, {copy.nbytes}u);\n"
        for copy, source in zip(copies, sources, strict=True)
    )
    return (
        '#include "tuner_runtime.h"\n\n#include <string.h>\n#include <time.h>\n\n'
        f"extern const unsigned char {constants}[] TUNER_HIDDEN;\n\n{tables}\n"
        f"int {entry}(void *self, const TunerAny *arguments, int32_t count, TunerAny *result);\n\n"
        f"int {entry}(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {{\n"
        f"  (void)self, (void)result, (void){constants};\n"
        f"  unsigned char *at[{inputs + outputs}], *arena = "
        f"tuner_workspace({max(arena_bytes, 1)}u);\n"
        "  if (arena == NULL) return -1;\n"
        "  for (int32_t i = 0; i < count; ++i) {\n"
        "    const TunerDLTensor *tensor = arguments[i].value.v_ptr;\n"
        "    at[i] = (unsigned char *)tensor->data + tensor->byte_offset;\n  }\n"
        "  int status = TUNER_OK;\n"
        f"{_CLOCK.format(last=inputs + outputs - 1) if profiled else ''}"
        f"  do {{\n{calls}{copied}  }} while (0);\n"
        "  tuner_workspace_free(arena);\n  return status == TUNER_OK ? 0 : -1;\n}\n"
    )


def _call(step: Step, inputs: int, constants: str) -> str:
    buffers = ", ".join(_address(place, inputs, constants) for place in step.buffers)
    return (
        f"    if ((status = tuner_call(&function_{step.kernel}, (void "
        f"*const[]){{{buffers}}})) != TUNER_OK) break;\n"
    )


def _clocked(number: int) -> str:
    """Notes the nanoseconds of a step, counted from the end of the step before."""
    return (
        "    clock_gettime(CLOCK_MONOTONIC, &now);\n"
        f"    spent[{number}] = (now.tv_sec - then.tv_sec) * 1000000000LL + (now.tv_nsec - "
        f"then.tv_nsec), then = now;\n"
    )


def _address(place: Place, inputs: int, constants: str) -> str:
    match place.kind:
        case "input":
            return f"at[{place.position}]"
        case "output":
            return f"at[{inputs + place.position}]"
        case "constant":
            return f"(void *)({constants} + {place.position}u)"
        case _:
            return f"arena + {place.position}u"


def constants_source(entry: str) -> str:
    """Assembly that puts the file `constants.bin` into the library.

    The constants are read-only and aligned as buffers are.
    """
    symbol = constants_symbol(entry)
    return (
        f'  .section .rodata.{symbol},"a"\n  .globl {symbol}\n  .hidden {symbol}\n  .balign 64\n'
        f'{symbol}:\n  .incbin "constants.bin"\n  .skip 64\n  .section '
        f'.note.GNU-stack,"",@progbits\n'
    )
