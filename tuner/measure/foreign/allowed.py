"""What a foreign kernel may include, call and consist of."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Headers that a source may include, with whatever these include themselves.
HEADERS: tuple[str, ...] = (
    "complex.h", "float.h", "inttypes.h", "limits.h", "math.h", "stdalign.h", "stdbool.h",
    "stddef.h", "stdint.h", "stdlib.h", "string.h", "tgmath.h",
)  # fmt: skip
# The same of one architecture: its vector instructions.
OF_MACHINE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "x86_64": ("immintrin.h", "x86intrin.h"),
        "aarch64": ("arm_acle.h", "arm_neon.h", "arm_sve.h"),
    }
)

_OF_REALS = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos",
    "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax",
    "fmin", "fmod", "frexp", "hypot", "ldexp", "lgamma", "llrint", "llround", "log", "log10",
    "log1p", "log2", "logb", "lrint", "lround", "modf", "nearbyint", "nextafter", "pow",
    "remainder", "rint", "round", "roundeven", "scalbln", "scalbn", "sin", "sincos", "sinh", "sqrt",
    "tan", "tanh", "tgamma", "trunc",
)  # fmt: skip
_OF_COMPLEX = ("cabs", "carg", "cexp", "cimag", "clog", "conj", "cpow", "creal", "csqrt")
_OF_MEMORY = (
    "abort", "abs", "aligned_alloc", "bsearch", "calloc", "free", "labs", "llabs", "malloc",
    "memchr", "memcmp", "memcpy", "memmove", "memset", "posix_memalign", "qsort", "realloc",
)  # fmt: skip
# Helpers of the compiler's own library, and what position-independent code refers to.
_OF_COMPILER = (
    "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail", "__mulsc3", "__muldc3", "__divsc3", "__divdc3",
    "__popcountdi2", "__clzdi2", "__ctzdi2", "__divti3", "__udivti3", "__modti3", "__umodti3",
    "__multi3", "__powisf2", "__powidf2", "__extendhfsf2", "__truncsfhf2", "__truncdfhf2",
    "__extendhfdf2", "__extendbfsf2", "__truncsfbf2", "__truncdfbf2", "__floattisf", "__floattidf",
    "__fixsfti", "__fixdfti", "__floatuntisf", "__floatuntidf", "__fixunssfti", "__fixunsdfti",
)  # fmt: skip
CALLABLE = frozenset(
    (
        *_OF_REALS,
        *(f"{name}f" for name in _OF_REALS),
        *_OF_COMPLEX,
        *(f"{name}f" for name in _OF_COMPLEX),
        *_OF_MEMORY,
        *_OF_COMPILER,
    )
)

# Beginnings of the names of sections: code, data, their relocations, what describes them.
SECTIONS: tuple[str, ...] = (
    ".text", ".data", ".rodata", ".bss", ".rela.text", ".rela.data", ".rela.rodata", ".comment",
    ".note.GNU-stack", ".note.gnu.property", ".eh_frame", ".rela.eh_frame", ".symtab", ".strtab",
    ".shstrtab",
)  # fmt: skip
