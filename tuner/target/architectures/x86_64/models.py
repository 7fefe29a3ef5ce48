"""From an x86-64 processor's facts to LLVM's name of it, and its vector features.

The table is LLVM's own host detection by vendor, family and model
(llvm/lib/TargetParser/Host.cpp), for cores with AVX2 and later. A hypervisor may hide
features the model has, so a name stands only where the features its code generation
takes for granted are there. It may also give a machine another model's number, and
there are models newer than the table: then the features say which generation of the
vendor's code generation is right, or else which x86-64 level.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.target.processor import Processor

# Kernel spelling -> LLVM and GCC spelling, of the features that matter to generated kernels.
FEATURES: Mapping[str, str] = {
    "sse2": "sse2", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "avx": "avx", "avx2": "avx2",
    "fma": "fma", "f16c": "f16c", "bmi2": "bmi2", "avx512f": "avx512f", "avx512bw": "avx512bw",
    "avx512cd": "avx512cd", "avx512dq": "avx512dq", "avx512vl": "avx512vl",
    "avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16", "avx512_fp16": "avx512fp16",
    "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi", "avx512_vbmi2": "avx512vbmi2",
    "avx_vnni": "avxvnni", "amx_tile": "amx-tile", "amx_int8": "amx-int8", "amx_bf16": "amx-bf16",
}  # fmt: skip

AVX2 = frozenset({"avx2", "fma", "f16c", "bmi2"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
VNNI = AVX512 | {"avx512_vnni"}
BF16 = VNNI | {"avx512_bf16"}
# A model that the table does not say needs these has not got them.
TELLING = frozenset({"avx512_fp16", "amx_tile"})
FP16 = BF16 | TELLING

# (vendor, family, first model, last model, LLVM name, features its code generation
# takes for granted)
MODELS: tuple[tuple[str, int, int, int, str, frozenset[str]], ...] = (
    ("AuthenticAMD", 0x17, 0x00, 0x2F, "znver1", AVX2),
    ("AuthenticAMD", 0x17, 0x30, 0xFF, "znver2", AVX2),
    ("AuthenticAMD", 0x19, 0x00, 0x0F, "znver3", AVX2),
    ("AuthenticAMD", 0x19, 0x10, 0x1F, "znver4", BF16),
    ("AuthenticAMD", 0x19, 0x20, 0x5F, "znver3", AVX2),
    ("AuthenticAMD", 0x19, 0x60, 0xAF, "znver4", BF16),
    ("AuthenticAMD", 0x1A, 0x00, 0x77, "znver5", BF16 | {"avx_vnni"}),
    ("GenuineIntel", 6, 0x3C, 0x3C, "haswell", AVX2),
    ("GenuineIntel", 6, 0x3F, 0x3F, "haswell", AVX2),
    ("GenuineIntel", 6, 0x45, 0x46, "haswell", AVX2),
    ("GenuineIntel", 6, 0x3D, 0x3D, "broadwell", AVX2),
    ("GenuineIntel", 6, 0x47, 0x47, "broadwell", AVX2),
    ("GenuineIntel", 6, 0x4F, 0x4F, "broadwell", AVX2),
    ("GenuineIntel", 6, 0x56, 0x56, "broadwell", AVX2),
    ("GenuineIntel", 6, 0x4E, 0x4E, "skylake", AVX2),
    ("GenuineIntel", 6, 0x5E, 0x5E, "skylake", AVX2),
    ("GenuineIntel", 6, 0x8E, 0x8E, "skylake", AVX2),
    ("GenuineIntel", 6, 0x9E, 0x9E, "skylake", AVX2),
    # Three generations share this model: the richest that is there.
    ("GenuineIntel", 6, 0x55, 0x55, "cooperlake", BF16),
    ("GenuineIntel", 6, 0x55, 0x55, "cascadelake", VNNI),
    ("GenuineIntel", 6, 0x55, 0x55, "skylake-avx512", AVX512),
    ("GenuineIntel", 6, 0x6A, 0x6A, "icelake-server", VNNI),
    ("GenuineIntel", 6, 0x6C, 0x6C, "icelake-server", VNNI),
    ("GenuineIntel", 6, 0x7D, 0x7E, "icelake-client", VNNI),
    ("GenuineIntel", 6, 0x8C, 0x8D, "tigerlake", VNNI),
    ("GenuineIntel", 6, 0xA7, 0xA7, "rocketlake", VNNI),
    ("GenuineIntel", 6, 0x8F, 0x8F, "sapphirerapids", FP16),
    ("GenuineIntel", 6, 0xCF, 0xCF, "emeraldrapids", FP16),
    ("GenuineIntel", 6, 0xAD, 0xAE, "graniterapids", FP16),
    ("GenuineIntel", 6, 0x97, 0x97, "alderlake", AVX2 | {"avx_vnni"}),
    ("GenuineIntel", 6, 0x9A, 0x9A, "alderlake", AVX2 | {"avx_vnni"}),
    ("GenuineIntel", 6, 0xB7, 0xB7, "raptorlake", AVX2 | {"avx_vnni"}),
    ("GenuineIntel", 6, 0xBA, 0xBA, "raptorlake", AVX2 | {"avx_vnni"}),
)

# What a vendor's cores of unknown model, or of a model that has not all that is there,
# are at least; the richest first.
GENERATIONS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("GenuineIntel", "sapphirerapids", FP16),
    ("GenuineIntel", "cooperlake", BF16),
    ("GenuineIntel", "icelake-server", VNNI | {"avx512_vbmi2", "avx512ifma"}),
    ("GenuineIntel", "cascadelake", VNNI),
    ("GenuineIntel", "alderlake", AVX2 | {"avx_vnni"}),
    ("AuthenticAMD", "znver5", BF16 | {"avx_vnni"}),
    ("AuthenticAMD", "znver4", BF16),
)

# The architecture's levels by what they add; the richest first.
LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86-64-v4", AVX512),
    ("x86-64-v3", AVX2),
    ("x86-64-v2", frozenset({"sse4_2"})),
)

# Cores that multiply and add one vector of 512 bits a cycle, but two of 256: AMD's Zen
# 4 takes it in two halves (docs/design-notes/0011 has the rates measured there), Intel's
# for clients lack the second unit of that width.
ONE_WIDE_UNIT = frozenset({"znver4", "icelake-client", "tigerlake", "rocketlake"})


def llvm_cpu(processor: Processor) -> str:
    """LLVM's `-mcpu` name of a processor.

    That of its model, where the model's features are there and account for all telling
    ones. Else that of the generation that the features show, else the architecture's
    level.
    """
    for vendor, family, first, last, name, needs in MODELS:
        is_model = (vendor, family) == (processor.vendor, processor.family) and (
            first <= processor.model <= last
        )
        if is_model and needs <= processor.flags and not (TELLING & processor.flags) - needs:
            return name
    for vendor, name, needs in GENERATIONS:
        if vendor == processor.vendor and needs <= processor.flags:
            return name
    return next((level for level, needs in LEVELS if needs <= processor.flags), "x86-64")
