"""x86 instruction-set features in LLVM's spelling, with the CPUID bit that announces each.

Bits from Intel's Software Developer's Manual, volume 2A, CPUID, and AMD's Architecture
Programmer's Manual, volume 3, appendix E. `xcr0` holds the register state the operating
system must save (bits 1-2 AVX, 5-7 AVX-512, 17-18 AMX).
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.target.architectures.architecture import CpuidFeature

EAX, EBX, ECX, EDX = 0, 1, 2, 3
SSE, AVX, AVX512, AMX = 0, 0x6, 0xE6, 0x60000
EXTENDED = 0x80000001

CPUID: Mapping[str, CpuidFeature] = {
    "sse": CpuidFeature(1, 0, EDX, 25, SSE),
    "sse2": CpuidFeature(1, 0, EDX, 26, SSE),
    "sse3": CpuidFeature(1, 0, ECX, 0, SSE),
    "ssse3": CpuidFeature(1, 0, ECX, 9, SSE),
    "sse4.1": CpuidFeature(1, 0, ECX, 19, SSE),
    "sse4.2": CpuidFeature(1, 0, ECX, 20, SSE),
    "pclmul": CpuidFeature(1, 0, ECX, 1, SSE),
    "cx16": CpuidFeature(1, 0, ECX, 13, SSE),
    "movbe": CpuidFeature(1, 0, ECX, 22, SSE),
    "popcnt": CpuidFeature(1, 0, ECX, 23, SSE),
    "aes": CpuidFeature(1, 0, ECX, 25, SSE),
    "avx": CpuidFeature(1, 0, ECX, 28, AVX),
    "fma": CpuidFeature(1, 0, ECX, 12, AVX),
    "f16c": CpuidFeature(1, 0, ECX, 29, AVX),
    "avx2": CpuidFeature(7, 0, EBX, 5, AVX),
    "bmi": CpuidFeature(7, 0, EBX, 3, SSE),
    "bmi2": CpuidFeature(7, 0, EBX, 8, SSE),
    "adx": CpuidFeature(7, 0, EBX, 19, SSE),
    "sha": CpuidFeature(7, 0, EBX, 29, SSE),
    "gfni": CpuidFeature(7, 0, ECX, 8, SSE),
    "vaes": CpuidFeature(7, 0, ECX, 9, AVX),
    "vpclmulqdq": CpuidFeature(7, 0, ECX, 10, AVX),
    "lzcnt": CpuidFeature(EXTENDED, 0, ECX, 5, SSE),
    "sahf": CpuidFeature(EXTENDED, 0, ECX, 0, SSE),
    "sse4a": CpuidFeature(EXTENDED, 0, ECX, 6, SSE),
    "prfchw": CpuidFeature(EXTENDED, 0, ECX, 8, SSE),
    "avx512f": CpuidFeature(7, 0, EBX, 16, AVX512),
    "avx512dq": CpuidFeature(7, 0, EBX, 17, AVX512),
    "avx512ifma": CpuidFeature(7, 0, EBX, 21, AVX512),
    "avx512cd": CpuidFeature(7, 0, EBX, 28, AVX512),
    "avx512bw": CpuidFeature(7, 0, EBX, 30, AVX512),
    "avx512vl": CpuidFeature(7, 0, EBX, 31, AVX512),
    "avx512vbmi": CpuidFeature(7, 0, ECX, 1, AVX512),
    "avx512vbmi2": CpuidFeature(7, 0, ECX, 6, AVX512),
    "avx512vnni": CpuidFeature(7, 0, ECX, 11, AVX512),
    "avx512bitalg": CpuidFeature(7, 0, ECX, 12, AVX512),
    "avx512vpopcntdq": CpuidFeature(7, 0, ECX, 14, AVX512),
    "avx512vp2intersect": CpuidFeature(7, 0, EDX, 8, AVX512),
    "avx512fp16": CpuidFeature(7, 0, EDX, 23, AVX512),
    "avxvnni": CpuidFeature(7, 1, EAX, 4, AVX),
    "avx512bf16": CpuidFeature(7, 1, EAX, 5, AVX512),
    "avxifma": CpuidFeature(7, 1, EAX, 23, AVX),
    "avxvnniint8": CpuidFeature(7, 1, EDX, 4, AVX),
    "amx-bf16": CpuidFeature(7, 0, EDX, 22, AMX),
    "amx-tile": CpuidFeature(7, 0, EDX, 24, AMX),
    "amx-int8": CpuidFeature(7, 0, EDX, 25, AMX),
}

_V2 = ("cx16", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

# The microarchitecture levels of the System V ABI for x86-64, by the names that
# compilers give them; the richest first.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "x86-64-v4": tuple(sorted(_V4)),
    "x86-64-v3": tuple(sorted(_V3)),
    "x86-64-v2": tuple(sorted(_V2)),
    "x86-64": ("sse", "sse2"),  # every 64-bit x86
}
