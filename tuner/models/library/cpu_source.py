"""The C source of a model's executor, which calls the kernels in order.

The kernels work on the caller's buffers, the library's constants and one arena. The
executor has the calling convention of a compiled kernel, so a model is linked, checked,
timed and exported as a kernel is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tuner.models.library.layout import Layout
from tuner.models.library.memory import Place
from tuner.models.library.steps import Concurrent, Failure, Fixed, Move, Repeat, Step, Steps
from tuner.runtime.wrapper import Entry, kernel_tables

_LANES = "struct lanes {\n  unsigned char **at, *arena;\n};\n\n"
_CLOCK = (
    "  int64_t *spent = (int64_t *)at[{last}];\n"
    "  memset(spent, 0, {count} * sizeof *spent);\n"
    "  struct timespec then, now;\n"
    "  clock_gettime(CLOCK_MONOTONIC, &then);\n"
)


def constants_symbol(entry: str) -> str:
    """The symbol at which the constants of the model with this entry begin.

    It has the entry's name in it because one library may hold several models.
    """
    return f"{entry}_constants"


def executor(
    entry: str,
    *,
    kernels: Sequence[Entry],
    layout: Layout,
    names: Sequence[str],
    inputs: int,
    outputs: int,
    machine: str,
    profiled: bool = False,
) -> str:
    """C source with one function, the packed entry `entry`.

    It takes no lock. Its memory is the workspace of the calling thread. With `profiled`
    it writes the nanoseconds of each step, as int64, into its last output. `names` are
    those of the inputs, for messages.
    """
    tables = "".join(
        kernel_tables(str(index), kernel, machine) for index, kernel in enumerate(kernels)
    )
    constants = constants_symbol(entry)
    text = _Text(entry=entry, inputs=inputs, constants=constants, profiled=profiled)
    compared = "".join(text.compared(only, names[only.position]) for only in layout.fixed)
    calls = text.steps(layout.steps, depth=0)
    sources = [text.address(copy.source) for copy in layout.copies]
    copied = "".join(
        f"  memcpy(at[{inputs + copy.output}], {source}, {copy.nbytes}u);\n"
        for copy, source in zip(layout.copies, sources, strict=True)
    )
    clock = _CLOCK.format(last=inputs + outputs - 1, count=text.count) if profiled else ""
    return (
        '#include "tuner_runtime.h"\n\n#include <string.h>\n#include <time.h>\n\n'
        f"extern const unsigned char {constants}[] TUNER_HIDDEN;\n\n{tables}\n"
        f"{_LANES if text.functions else ''}{''.join(text.functions)}"
        f"int {entry}(void *self, const TunerAny *arguments, int32_t count, TunerAny *result);\n\n"
        f"int {entry}(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {{\n"
        f"  (void)self, (void)result, (void){constants};\n"
        f"  unsigned char *at[{inputs + outputs}], *arena = "
        f"tuner_workspace({max(layout.arena_bytes, 1)}u);\n"
        "  if (arena == NULL) return -1;\n"
        "  for (int32_t i = 0; i < count; ++i) {\n"
        "    const TunerDLTensor *tensor = arguments[i].value.v_ptr;\n"
        "    at[i] = (unsigned char *)tensor->data + tensor->byte_offset;\n  }\n"
        f"  int status = TUNER_OK;\n{clock}{compared}{calls}{copied}"
        "done: __attribute__((unused));\n"
        "  tuner_workspace_free(arena);\n  return status == TUNER_OK ? 0 : -1;\n}\n"
    )


class _Text:
    """The C of steps. Those of a profiled executor are counted in the order of the text."""

    def __init__(self, *, entry: str, inputs: int, constants: str, profiled: bool) -> None:
        self.entry, self.inputs, self.constants = entry, inputs, constants
        self.profiled, self.count = profiled, 0
        self.functions: list[str] = []  # of steps in lanes

    def compared(self, only: Fixed, name: str) -> str:
        """Ends the call where an input has another value than its only one, bit for bit."""
        symbol = self.entry.removeprefix("__tvm_ffi_")
        return (
            f"  if (memcmp(at[{only.position}], {self.address(only.place)}, {only.nbytes}u) != 0) "
            f'{{\n    status = tuner_fail(TUNER_ERROR_VALUE, "%s: input %s is not the value that '
            f'the library was made for; see its header", "{symbol}", '
            f'"{name}");\n    goto done;\n  }}\n'
        )

    def steps(self, steps: Sequence[Steps], depth: int) -> str:
        """`depth` is the number of loops around them."""
        return "".join(self.step(step, depth) for step in steps)

    def step(self, step: Steps, depth: int) -> str:
        if isinstance(step, Step):
            return self.call(step) + (self.clocked() if self.profiled else "")
        if isinstance(step, Move):
            return self.moved([step])
        if isinstance(step, Repeat):
            return self.repeat(step, depth)
        if isinstance(step, Concurrent):
            return self.concurrent(step)
        return (
            f"  if (*(const unsigned char *)({self.address(step.condition)})) {{\n"
            f"{self.side(step.then, depth)}  }} else {{\n{self.side(step.other, depth)}  }}\n"
        )

    def side(self, side: tuple[Steps, ...] | Failure, depth: int) -> str:
        if not isinstance(side, Failure):
            return self.steps(side, depth)
        return (
            f'  status = tuner_fail(TUNER_ERROR_EXTENT, "%s", "{_plain(side.reason)}");\n'
            "  goto done;\n"
        )

    def repeat(self, step: Repeat, depth: int) -> str:
        time = f"t{depth}"
        going = (
            ""
            if step.condition is None
            else f" && *(const unsigned char *)({self.address(step.condition)})"
        )
        return (
            f"{self.moved(step.before)}"
            f"  for (int64_t {time} = 0; {time} < INT64_C({step.count}){going}; ++{time}) {{\n"
            f"{self.moved(step.reads)}{self.steps(step.steps, depth + 1)}"
            f"{self.moved(step.writes)}  }}\n"
        )

    def concurrent(self, step: Concurrent) -> str:
        """The call of a function of its own, once for each lane."""
        name, count = f"{self.entry}_lanes_{len(self.functions)}", len(step.lanes)
        cases = "".join(
            f"  case {number}:\n{self.steps(lane, depth=0)}    break;\n"
            for number, lane in enumerate(step.lanes)
        )
        self.functions.append(
            f"static int {name}(int lane, TunerParallelEnv *env, void *closure) {{\n"
            "  (void)env;\n"
            "  __attribute__((unused)) unsigned char **at = ((struct lanes *)closure)->at;\n"
            "  __attribute__((unused)) unsigned char *arena = ((struct lanes *)closure)->arena;\n"
            f"  int status = TUNER_OK;\n  switch (lane) {{\n{cases}  }}\n"
            "done: __attribute__((unused));\n  return status == TUNER_OK ? 0 : -1;\n}\n\n"
        )
        return (
            f"  if ((status = tuner_run_lanes({name}, &(struct lanes){{at, arena}}, {count})) != "
            "TUNER_OK) goto done;\n"
        )

    def moved(self, moves: Sequence[Move]) -> str:
        return "".join(
            f"  memcpy({self.address(move.destination)}, {self.address(move.source)}, "
            f"{move.nbytes}u);\n"
            for move in moves
        )

    def call(self, step: Step) -> str:
        if step.switch is not None:
            cases = "".join(
                f"  case {number}:\n{self.call(other)}    break;\n"
                for number, other in enumerate(step.switch.others, 1)
            )
            return (
                f"  switch (at[{self.inputs - 1}][{step.switch.byte}]) {{\n{cases}"
                f"  default:\n{self.call(replace(step, switch=None))}  }}\n"
            )
        buffers = ", ".join(self.address(place) for place in step.buffers)
        return (
            f"  if ((status = tuner_call(&function_{step.kernel}, (void "
            f"*const[]){{{buffers}}})) != TUNER_OK) goto done;\n"
        )

    def clocked(self) -> str:
        """Adds the nanoseconds of a step, counted from the end of the step before."""
        number, self.count = self.count, self.count + 1
        return (
            "  clock_gettime(CLOCK_MONOTONIC, &now);\n"
            f"  spent[{number}] += (now.tv_sec - then.tv_sec) * 1000000000LL + (now.tv_nsec - "
            f"then.tv_nsec), then = now;\n"
        )

    def address(self, place: Place) -> str:
        moved = f" + {place.offset}" if place.offset else ""
        moved += "".join(
            f" + t{depth} * INT64_C({stride})"
            for depth, stride in enumerate(place.strides)
            if stride
        )
        match place.kind:
            case "input":
                return f"at[{place.position}]{moved}"
            case "output":
                return f"at[{self.inputs + place.position}]{moved}"
            case "constant":
                return f"(void *)({self.constants} + {place.position}u{moved})"
            case _:
                return f"arena + {place.position}u{moved}"


def _plain(text: str) -> str:
    """A text that may hold names of a stranger's file, fit to stand between quotes in C."""
    return re.sub(r"[^A-Za-z0-9 .,:;()\[\]'=_-]", "_", text)


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
