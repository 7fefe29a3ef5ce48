"""The C source of a model's executor, which calls the kernels in order.

The kernels work on the caller's buffers, the library's constants and one arena. The
executor has the calling convention of a compiled kernel, so a model is linked, checked,
timed and exported as a kernel is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tuner.models.memory import Place
from tuner.runtime.wrapper import Entry, kernel_tables

_CLOCK = (
    "  int64_t *spent = (int64_t *)at[{last}];\n"
    "  memset(spent, 0, {count} * sizeof *spent);\n"
    "  struct timespec then, now;\n"
    "  clock_gettime(CLOCK_MONOTONIC, &then);\n"
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """The call of one kernel."""

    kernel: int  # position among the kernels
    buffers: tuple[Place, ...]  # its arguments in order
    other: Alternative | None = None


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """The call that takes a step's place where byte `switch` of the last input is not 0."""

    switch: int
    step: Step


@dataclass(frozen=True, kw_only=True)
class Move:
    """Bytes copied from one place to another."""

    source: Place
    destination: Place
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """Steps that are repeated, with the copies of slices that are not aligned."""

    count: int
    before: tuple[Move, ...]  # once
    reads: tuple[Move, ...]  # at the begin of each iteration
    steps: tuple[Step, ...]
    writes: tuple[Move, ...]  # at its end


@dataclass(frozen=True, kw_only=True)
class Copy:
    """An output that is another tensor: an input, a constant, or another output."""

    output: int
    source: Place
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """An input that may have only one value: that of a constant."""

    position: int  # among the inputs
    name: str  # for messages
    place: Place
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
    steps: Sequence[Step | Repeat],
    copies: Sequence[Copy],
    fixed: Sequence[Fixed],
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
    compared = "".join(_compared(entry, only, inputs, constants) for only in fixed)
    calls = "".join(_steps(steps, inputs, constants, profiled=profiled))
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
        f"{_CLOCK.format(last=inputs + outputs - 1, count=_count(steps)) if profiled else ''}"
        f"  do {{\n{compared}{calls}{copied}  }} while (0);\n"
        "  tuner_workspace_free(arena);\n  return status == TUNER_OK ? 0 : -1;\n}\n"
    )


def _compared(entry: str, only: Fixed, inputs: int, constants: str) -> str:
    """Ends the call where an input has another value than its only one, bit for bit."""
    right = _address(only.place, inputs, constants)
    return (
        f"    if (memcmp(at[{only.position}], {right}, {only.nbytes}u) != 0) {{\n"
        f'      status = tuner_fail(TUNER_ERROR_VALUE, "%s: input %s is not the value that the '
        f'library was made for; see its header", "{entry.removeprefix("__tvm_ffi_")}", '
        f'"{only.name}");\n'
        "      break;\n    }\n"
    )


def _count(steps: Sequence[Step | Repeat]) -> int:
    return sum(len(step.steps) if isinstance(step, Repeat) else 1 for step in steps)


def _steps(
    steps: Sequence[Step | Repeat], inputs: int, constants: str, *, profiled: bool
) -> Iterator[str]:
    """Their C; the steps of a profiled executor are counted in the order of the text."""
    number = 0
    for step in steps:
        repeated = step.steps if isinstance(step, Repeat) else (step,)
        inner = ""
        for call in repeated:
            inner += _call(call, inputs, constants) + (_clocked(number) if profiled else "")
            number += 1
        if not isinstance(step, Repeat):
            yield inner
            continue

        def moved(moves: Sequence[Move]) -> str:
            return "".join(_moved(move, inputs, constants) for move in moves)

        yield (
            f"{moved(step.before)}    for (int64_t t = 0; t < {step.count}; ++t) {{\n"
            f"{moved(step.reads)}{inner}{moved(step.writes)}    }}\n"
            "    if (status != TUNER_OK) break;\n"
        )


def _moved(move: Move, inputs: int, constants: str) -> str:
    source, destination = (
        _address(place, inputs, constants) for place in (move.source, move.destination)
    )
    return f"    memcpy({destination}, {source}, {move.nbytes}u);\n"


def _call(step: Step, inputs: int, constants: str) -> str:
    if step.other is not None:
        plain = _call(replace(step, other=None), inputs, constants)
        other = _call(step.other.step, inputs, constants)
        switch = f"at[{inputs - 1}][{step.other.switch}]"
        return f"    if ({switch}) {{\n{other}    }} else {{\n{plain}    }}\n"
    buffers = ", ".join(_address(place, inputs, constants) for place in step.buffers)
    return (
        f"    if ((status = tuner_call(&function_{step.kernel}, (void "
        f"*const[]){{{buffers}}})) != TUNER_OK) break;\n"
    )


def _clocked(number: int) -> str:
    """Adds the nanoseconds of a step, counted from the end of the step before."""
    return (
        "    clock_gettime(CLOCK_MONOTONIC, &now);\n"
        f"    spent[{number}] += (now.tv_sec - then.tv_sec) * 1000000000LL + (now.tv_nsec - "
        f"then.tv_nsec), then = now;\n"
    )


def _address(place: Place, inputs: int, constants: str) -> str:
    moved = f" + {place.offset}" if place.offset else ""
    moved += f" + t * INT64_C({place.stride})" if place.stride else ""
    match place.kind:
        case "input":
            return f"at[{place.position}]{moved}"
        case "output":
            return f"at[{inputs + place.position}]{moved}"
        case "constant":
            return f"(void *)({constants} + {place.position}u{moved})"
        case _:
            return f"arena + {place.position}u{moved}"


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
