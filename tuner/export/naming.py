"""Names of libraries and C functions: valid in C, C++ and Python, stable, and unique.

A catalogue kernel is named after its operator and parameters (`matmul_m512_n512_k512`,
`dense_m1_n8_k8_bias_relu_f16`), a notation kernel after its own name and shapes. Equal
names get the number of threads, then the workload's key, then a count appended.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.export.errors import ExportRefused
from tuner.export.kernel import ExportKernel
from tuner.runtime.prepack import pack_symbol
from tuner.runtime.wrapper import HELPERS
from tuner.workload.workload import Workload

LONGEST = 80  # characters of a derived function name; a longer one is cut and gets its key
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")
SYMBOL = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}\Z")
KERNEL_NAME = re.compile(r"\bkernel\s+([A-Za-z_][A-Za-z0-9_]*)")
SHORT_DTYPE = {
    "float64": "f64", "float32": "", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint64": "u64", "uint32": "u32",
    "uint16": "u16", "uint8": "u8", "bool": "b8",
}  # fmt: skip
# Folders of an export, beside which the Python package stands.
FOLDERS = frozenset({"lib", "include", "cmake", "examples", "huggingface"})
KEYWORDS = """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl concept
    const constexpr continue decltype default delete do double else enum explicit export extern
    false float for friend goto if inline int long main mutable namespace new noexcept not
    nullptr operator or private protected public register restrict return short signed sizeof
    static struct switch template this thread_local throw true try typedef typeid typename union
    unsigned using virtual void volatile wchar_t while xor
"""  # of C and C++
OURS = """
    std tuner numpy tensor buffer error shape_error shape_type elements detail library operators
    annotations aligned_empty set_num_threads sys import_module run_all check_status
    check_output check_unchanged half_bits half_value from_bits to_bits
    hash_of
"""  # of header, package and examples
LIBC = """
    malloc free memcpy memmove memset strcmp exp expf log logf tanh tanhf erf erff pow powf sqrt
    sqrtf fabs fabsf floor floorf ceil ceilf round roundf trunc truncf sin sinf cos cosf exit
    abort read write
"""  # which a function of that name would replace within the library
HEADERS = """
    assert complex cpio ctype dirent dlfcn errno fcntl fenv float fmtmsg fnmatch ftw glob grp
    iconv inttypes iso646 langinfo libgen limits locale math memory monetary mqueue ndbm netdb
    nl_types poll pthread pwd regex sched search semaphore setjmp signal spawn stdalign stdarg
    stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string strings stropts syslog tar
    termios tgmath threads time trace uchar ulimit unistd utime utmpx wchar wctype wordexp
    linux unix
"""  # of C and POSIX, which a header of that name would hide, and what compilers define
# Of functions of the runtime, and of those it calls.
PREFIXES = ("tuner_", "tvm", "pthread_", "posix_", "clock_", "sched_")
RESERVED = frozenset(f"{KEYWORDS} {OURS} {LIBC}".split())


def check_library_name(name: str) -> None:
    """Checks that a library can have this name. Raises ExportRefused."""
    reserved = name in RESERVED or keyword.iskeyword(name) or name.lower() in FOLDERS
    hides = name in HEADERS.split() or name in sys.stdlib_module_names
    if not NAME.match(name) or reserved or hides:
        raise ExportRefused(
            f"library name {name!r}: give an identifier of at most 64 letters, digits and "
            f"underscores that is no keyword, no "
            f"header or function of C, no module of Python's library, and none of "
            f"{', '.join(sorted(FOLDERS))}"
        )


def named(kernels: Sequence[ExportKernel], library: str) -> tuple[ExportKernel, ...]:
    """The kernels with symbols for those that have none.

    Raises ExportRefused where two given symbols are equal or one is invalid.
    """
    check_library_name(library)
    used = {f"{library}_{helper}" for helper in HELPERS} | {library}
    for kernel in kernels:
        if kernel.symbol is None:
            continue
        if not SYMBOL.match(kernel.symbol) or _is_reserved(kernel.symbol):
            raise ExportRefused(
                f"function name {kernel.symbol!r}: give an identifier of at most 128 characters "
                f"that is no keyword, no function "
                f"of libc, and does not begin with {', '.join(PREFIXES)}"
            )
        for symbol in _symbols(kernel, kernel.symbol):
            if symbol in used:
                raise ExportRefused(f"function name {symbol!r} is used twice in library {library}")
            used.add(symbol)
    result = []
    for kernel in kernels:
        symbol = kernel.symbol if kernel.symbol is not None else _free_name(kernel, used)
        used.update(_symbols(kernel, symbol))
        result.append(replace(kernel, symbol=symbol))
    return tuple(result)


def base_name(kernel: ExportKernel) -> str:
    """The name of the kernel's function before it is made unique."""
    return function_name(
        op=kernel.op,
        params=kernel.params,
        notation=kernel.notation,
        shapes=kernel.shapes,
        key=kernel.workload_key,
    )


def function_name(
    *,
    op: str | None,
    params: Mapping[str, int | float | str | bool],
    notation: str | None,
    shapes: Mapping[str, int],
    key: str,
) -> str:
    """The name of a workload's function. `key`: the workload's, which ends a long name."""
    if op is not None:
        parts = [op, *(_parameter(name, value) for name, value in params.items())]
    else:
        match = KERNEL_NAME.search(notation or "")
        parts = [
            match.group(1) if match else "kernel",
            *(f"{name}{value}" for name, value in shapes.items()),
        ]
    name = re.sub(r"[^a-z0-9_]+", "_", "_".join(part for part in parts if part).lower()).strip("_")
    if len(name) > LONGEST:
        name = f"{name[:LONGEST].rstrip('_')}_{key[:8]}"
    usable = "_" in name and name[:1].isalpha() and not _is_reserved(name)
    return name if usable else f"kernel_{name}"


def symbol_of(workload: Workload) -> str:
    """The name of the function of a workload's kernel."""
    return function_name(
        op=workload.op,
        params=workload.params,
        notation=workload.notation,
        shapes=workload.shapes,
        key=workload.key,
    )


def _is_reserved(name: str) -> bool:
    """Whether a language, the C library or our runtime uses the name of a function."""
    return name in RESERVED or keyword.iskeyword(name) or name.lower().startswith(PREFIXES)


def _parameter(name: str, value: int | float | str | bool) -> str:
    """A workload's parameter as a part of a name; empty for one that says nothing."""
    if isinstance(value, bool):
        return name if value else ""
    if isinstance(value, str) and ".." in value:
        return f"{name}{value.replace('..', 'to')}"
    if isinstance(value, str):
        return SHORT_DTYPE.get(value, "" if value == "none" else value)
    return f"{name}{value}"


def _free_name(kernel: ExportKernel, used: set[str]) -> str:
    """The first candidate whose symbols are all unused."""
    name = base_name(kernel)
    threads = f"{name}_t{kernel.threads}"
    keyed = f"{threads}_{kernel.workload_key[:8]}"
    candidates = [name, threads, keyed, *(f"{keyed}_{count}" for count in range(2, len(used) + 3))]
    return next(
        candidate for candidate in candidates if used.isdisjoint(_symbols(kernel, candidate))
    )


def _symbols(kernel: ExportKernel, symbol: str) -> tuple[str, ...]:
    """The C functions of a kernel called `symbol`."""
    return (symbol,) if kernel.prepack is None else (symbol, pack_symbol(symbol))
