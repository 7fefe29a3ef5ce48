"""Small libraries with the exported library's own ABI, one of each behaviour a
generated kernel may show: C[i] = A[i] + B[i]."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.attacks import ATTACKS, INCLUDES
from tuner.measure.outcome import FailureKind
from tuner.runtime.link import Function, link, runtime_sources
from tuner.workload.expression import Axis, Binary, Expression, Read, Stage, Tensor, Var
from tuner.workload.spec import workload_from_expression
from tuner.workload.workload import Workload

COUNT = 1003  # odd: the data does not fill its last 64 bytes, so canary bytes follow it

PRELUDE = """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tvm_abi.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
enum { COUNT = %d };
int kernel_entry(void *self, const TunerAny *arguments, int32_t count, TunerAny *result) {
  float *a = ((TunerDLTensor *)arguments[0].value.v_ptr)->data;
  float *b = ((TunerDLTensor *)arguments[1].value.v_ptr)->data;
  float *c = ((TunerDLTensor *)arguments[2].value.v_ptr)->data;
  (void)self, (void)count, (void)result, (void)a, (void)b, (void)c;
"""
ADD = "for (int i = 0; i < COUNT; ++i) c[i] = a[i] + b[i];"

KERNELS: Mapping[str, str] = {
    "good": ADD,
    "slow": ADD + " usleep(20000);",
    "long": ADD + " static int calls; if (calls++) for (;;) pause(); usleep(1100000);",
    "lame": ADD + " usleep(2000);",
    "wrong": ADD + " c[7] += 1.0f;",
    "nan": ADD + " c[7] = 0.0f / (c[7] - c[7]);",
    "untouched": "",
    "reads_output": "for (int i = 0; i < COUNT; ++i) c[i] = c[i] == c[i] ? 0 : a[i] + b[i];",
    "right_once": "static int calls; if (calls++ > 0) return 0; " + ADD,
    "wrong_later": "static int calls; " + ADD + " if (calls++ > 3) c[0] += 1.0f;",
    "segfault": "*(volatile int *)8 = 1;",
    "abort": ADD + ' fputs("assertion failed: tile > 0\\n", stderr); abort();',
    "exit": "_exit(0);",
    "endless": "for (volatile int i = 0;; ++i) {}",
    "stubborn": "signal(SIGTERM, SIG_IGN); signal(SIGINT, SIG_IGN); signal(SIGHUP, SIG_IGN); "
    "for (;;) sleep(1);",
    "tail_overrun": ADD + " c[COUNT] = 1.0f;",
    "far_overrun": ADD + " c[COUNT + 16] = 1.0f;",
    "far_underrun": ADD + " c[-1024 - 16] = 1.0f;",
    "over_read": ADD + " c[0] += 0.0f * ((volatile float *)a)[COUNT + 16];",
    "changes_input": ADD + " a[5] = 3.0f;",
    "greedy": 'void *memory = malloc(64ull << 30); if (!memory) { fputs("out of memory\\n", '
    "stderr); abort(); } "
    "memset(memory, 1, 64ull << 30); " + ADD,
    "verbose": "static char text[1 << 20]; for (int i = 0; i < 10240; ++i) fwrite(text, 1, "
    "sizeof text, stdout); " + ADD,
    "bomb": "static int done; for (; done < 200; ++done) if (fork() == 0) { setsid(); for (;;) "
    "pause(); } " + ADD,
    "orphan": "if (fork() == 0) { setsid(); if (fork() == 0) for (;;) pause(); _exit(0); } "
    "wait(NULL); " + ADD,
    "token": 'const char *token = getenv("TUNER_TEST_TOKEN"); ' + ADD + " if (token) c[0] += 1.0f;",
    "descriptors": ADD
    + " for (int i = 4; i < 200; ++i) if (fcntl(i, F_GETFD) != -1) c[0] += 1.0f;",
}

# What any runner says of a behaviour: the kind of failure, and a pattern of its message.
COMMON_FAILURES: Sequence[tuple[str, FailureKind, str]] = (
    (
        "wrong",
        FailureKind.WRONG_ANSWER,
        r"output C is wrong in 1 of 1003 .* worst at \[7\]: got .*, want .*, error .* allowed",
    ),
    ("nan", FailureKind.WRONG_ANSWER, r"worst at \[7\]: got nan"),
    ("untouched", FailureKind.WRONG_ANSWER, "wrong in 1003 of 1003"),
    ("reads_output", FailureKind.WRONG_ANSWER, "output C is wrong"),
    ("right_once", FailureKind.WRONG_ANSWER, "timed"),
    ("wrong_later", FailureKind.WRONG_ANSWER, "timed"),
    ("tail_overrun", FailureKind.WRONG_ANSWER, "out of bounds of C, behind its end"),
    ("far_overrun", FailureKind.WRONG_ANSWER, "out of bounds of C: it hit a guard page"),
    ("far_underrun", FailureKind.WRONG_ANSWER, "out of bounds of C: it hit a guard page"),
    ("over_read", FailureKind.WRONG_ANSWER, "out of bounds of A: it hit a guard page"),
    ("changes_input", FailureKind.WRONG_ANSWER, r"changed its input A at element \[5\]"),
    ("segfault", FailureKind.RUN_CRASH, "SIGSEGV while checking normal inputs"),
    ("exit", FailureKind.RUN_CRASH, "exit code 0 and no result"),
)


def addition(count: int = COUNT) -> Workload:
    vector = tuple(Tensor(name=name, shape=(count,), dtype="float32") for name in ("A", "B"))
    body = Binary("add", Read("A", (Var("i"),)), Read("B", (Var("i"),)))
    stage = Stage(name="C", axes=(Axis(name="i", extent=count),), body=body, dtype="float32")
    return workload_from_expression(
        Expression(name="add", inputs=vector, stages=(stage,), outputs=("C",))
    )


def compile_kernel(behaviour: str, folder: Path, *, threads: int = 1) -> Path:
    """The library with that behaviour, linked against the product's runtime."""
    return compile_source(
        behaviour,
        PRELUDE % COUNT + KERNELS[behaviour] + "\n  return 0;\n}\n",
        folder,
        threads=threads,
    )


def compile_attack(attack: str, folder: Path, *, home: Path, port: int) -> Path:
    """The library that makes this attack on a folder and a port."""
    body = ATTACKS[attack].replace("@HOME@", str(home)).replace("@PORT@", str(port))
    return compile_source(attack, INCLUDES + PRELUDE % COUNT + body + "\n  return 0;\n}\n", folder)


def compile_source(
    name: str, text: str, folder: Path, *, inputs: Sequence[Tensor] = (), threads: int = 1
) -> Path:
    """The library of a text; its inputs are those of the addition where none are given."""
    for header in ("tvm_abi.h",):
        (folder / header).write_text(runtime_sources()[header])
    source, code = folder / f"{name}.c", folder / f"{name}.o"
    source.write_text(text)
    subprocess.run(
        ["cc", "-O1", "-fPIC", "-c", str(source), "-o", str(code)],
        check=True,
        timeout=60,
        capture_output=True,
    )
    expression = addition().expression
    function = Function(
        symbol="kernel",
        inputs=tuple(inputs) or expression.inputs,
        outputs=(expression.tensor("C"),),
        object_code=code.read_bytes(),
        isa=(),
        threads=threads,
        tvm_symbol="kernel_entry",
    )
    library = folder / f"lib{name}.so"
    library.write_bytes(link(name, [function]))
    return library
