"""Libraries of the hand-written kernels in kernels.c, linked by the product's own linker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.runtime.link import Function, link, runtime_sources
from tuner.runtime.loader import Library
from tuner.runtime.toolchain import Toolchain
from tuner.workload.expression import Tensor

KERNELS = Path(__file__).with_name("kernels.c")


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain.find(cache=tmp_path_factory.mktemp("cc-cache"))


@pytest.fixture(scope="session")
def object_code(toolchain: Toolchain) -> bytes:
    headers = {"tvm_abi.h": runtime_sources()["tvm_abi.h"]}
    # The kernels are entries like a compiler's: visible, so that the wrapper finds them.
    return toolchain.compile(
        "kernels.c", "#pragma GCC visibility push(default)\n" + KERNELS.read_text(), headers
    ).read_bytes()


@pytest.fixture(scope="session")
def function(object_code: bytes) -> Callable[..., Function]:
    """A Function of one of the kernels: entry name, threads, features."""

    def make(
        entry: str, *, threads: int = 1, isa: tuple[str, ...] = (), symbol: str | None = None
    ) -> Function:
        return Function(
            symbol=symbol or f"do_{entry}",
            inputs=(Tensor(name="X", shape=(1024,), dtype="float32"),),
            outputs=(Tensor(name="Y", shape=(1024,), dtype="float32"),),
            object_code=object_code,
            isa=isa,
            threads=threads,
            tvm_symbol=f"entry_{entry}",
        )

    return make


@pytest.fixture
def library(
    tmp_path: Path, toolchain: Toolchain, function: Callable[..., Function]
) -> Callable[..., Library]:
    """A loaded library of one kernel."""

    def make(
        entry: str, *, name: str = "kit", threads: int = 1, isa: tuple[str, ...] = ()
    ) -> Library:
        path = (
            tmp_path / f"lib{name}-{entry}-{threads}-{len(isa)}.so"
        )  # never over one that is loaded
        path.write_bytes(
            link(name, [function(entry, threads=threads, isa=isa)], toolchain=toolchain)
        )
        return Library(path)

    return make
