"""An architecture of which nothing is declared: plain arithmetic on 16-byte vectors."""

from __future__ import annotations

import archspec.cpu

from tuner.target.architectures.architecture import Architecture
from tuner.target.isa import IsaDescription
from tuner.target.processor import Processor


def archspec_name(_processor: Processor) -> str:
    """archspec's name of this machine, as LLVM spells it.

    Its generic families are LLVM's "generic".
    """
    host = archspec.cpu.host()
    return "generic" if host.vendor == "generic" else host.name.replace("_", "-")


def describe(features: tuple[str, ...], _mcpu: str) -> IsaDescription:
    """Sizes and rates are those that most current 64-bit cores have at least."""
    return IsaDescription(
        features=features,
        vector_bytes=16,
        vector_registers=16,
        dot_products=(),
        matrix_units=(),
        table_numbers=0,
        native_float16=False,
        non_temporal_stores=True,
        prefetch=True,
        line_bytes=64,
        page_bytes=4096,
        load_ports=2,
        line_fill_buffers=16,
        fma_units=2,
        wide_fma_units=2,
    )


GENERIC = Architecture(features={}, llvm_cpu=archspec_name, describe=describe)
