"""Modules of WebAssembly: the files of an export that a loader in JavaScript takes in.

Code, loader and example stand beside each other; nothing is for C, C++ or Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.export.examples import EXPECTED, expected_text
from tuner.export.kernel import ExportKernel
from tuner.export.template import fill
from tuner.runtime.link import Function, link_module
from tuner.runtime.toolchain import Toolchain


def module_files(
    name: str,
    kernels: Sequence[ExportKernel],
    functions: Sequence[Function],
    described: str,
    toolchain: Toolchain,
) -> dict[str, bytes]:
    """All files by path, except the manifest.

    `functions` are the kernels as the linker takes them, `described` says what they
    compute.
    """
    texts = {
        f"{name}.mjs": fill("module.mjs.in", name=name, functions=described.replace("*/", "* /")),
        "examples/example.mjs": fill("example.mjs.in", name=name),
        EXPECTED: expected_text(kernels),
    }
    return {
        f"{name}.wasm": link_module(name, functions, toolchain=toolchain),
        **{path: text.encode() for path, text in texts.items()},
    }
