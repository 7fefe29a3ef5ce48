"""The agent for a device, compiled from its C files and those that measure limits.

It links the C library of the device, as tuned libraries do: what loads them there loads
it. So it is no static program, which could not load a library.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tuner.runtime.link import toolchain_for
from tuner.runtime.toolchain import LinkError, Toolchain
from tuner.target.architectures.table import architecture_of
from tuner.target.target import Target

SOURCES = (
    "agent.c", "supervisor.c", "candidate.c", "buffers.c", "fence.c", "blobs.c", "frames.c",
    "pace.c", "sha256.c",
)  # fmt: skip
HEADERS = (
    "protocol.h", "supervisor.h", "candidate.h", "buffers.h", "fence.h", "blobs.h", "frames.h",
    "pace.h", "sha256.h", "limits.h",
)  # fmt: skip
LIMITS = "limits.c"  # of tuner.target
VECTORS = "scalable_vectors.h"  # of what libraries carry
FAST = ("-O3", "-ffp-contract=fast", "-ffast-math")


def agent_program(target: Target) -> bytes:
    """The program for a target's machines.

    Raises LinkError where the compiler is missing or refuses.
    """
    tools = toolchain_for(target)
    headers = {name: _text("tuner.runtime", "agent", name) for name in HEADERS}
    headers[VECTORS] = _text("tuner.runtime", "src", VECTORS)
    objects = [
        tools.compile(name, _text("tuner.runtime", "agent", name), headers) for name in SOURCES
    ]
    limits = _text("tuner.target", LIMITS)
    text = f"#define TUNER_AGENT {target.vector_bytes}\n{limits}"
    return tools.program([*objects, tools.compile(LIMITS, text, {}, _flags(tools, target))])


def _flags(tools: Toolchain, target: Target) -> tuple[str, ...]:
    """Flags of the code that measures limits: for the very core, where the compiler knows it.

    Scalable vectors are used at the length that kernels have them.
    """
    option = "-march" if tools.machine == "x86_64" else "-mcpu"
    of_core = [f"{option}={target.tvm['mcpu']}"]
    if architecture_of(target).length_feature(target.vector_bytes):
        of_core.append(f"-msve-vector-bits={8 * target.vector_bytes}")
    try:
        tools.compile("probe.c", "int probe;\n", {}, of_core)
    except LinkError:
        return FAST
    return (*FAST, *of_core)


@cache
def _text(package: str, *path: str) -> str:
    return files(package).joinpath(*path).read_text()
