"""Kernels of our own generator in a module, beside those of TVM's.

TVM's code generator has neither barriers of shared memory, copies of boxes and warps of
different tasks, nor the permuted shared memory from which warps load fragments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.lowering.cuda.multistage import MultistageKernel
from tuner.lowering.cuda.persistent import PersistentKernel
from tuner.lowering.cuda.persistent_source import PACKINGS
from tuner.lowering.passes.extremes import SOURCES as EXTREMES
from tuner.spaces.program.multistage import MultistageProduct
from tuner.spaces.program.persistent import PersistentProduct
from tuner.workload.expression import Tensor

Kernel = PersistentKernel | MultistageKernel


def kernels_of(
    products: Sequence[PersistentProduct], symbol: str, tensors: Mapping[str, Tensor]
) -> tuple[Kernel, ...]:
    """A kernel for each product, named after the function that launches them."""
    return tuple(
        MultistageKernel(symbol=f"{symbol}_multistage_{number}", product=product, tensors=tensors)
        if isinstance(product, MultistageProduct)
        else PersistentKernel(
            symbol=f"{symbol}_persistent_{number}", product=product, tensors=tensors
        )
        for number, product in enumerate(products)
    )


def with_specialized(source: str, kernels: Sequence[Kernel]) -> str:
    """The source of other kernels, perhaps none, with these and what they call."""
    bodies = "".join(kernel.text for kernel in kernels)
    headers = sorted({header for kernel in kernels for header in kernel.headers})
    extremes = (
        text for name, text in EXTREMES.items() if f"{name}(" in bodies and f"{name}(" not in source
    )
    packings = (text for dtype, text in PACKINGS.items() if f"tuner_pair_{dtype}(" in bodies)
    parts = (
        *(f"#include <{header}>\n" for header in headers),
        source,
        *extremes,
        *dict.fromkeys(text for kernel in kernels for text in kernel.instructions),
        *packings,
        bodies,
    )
    return "".join(parts)
