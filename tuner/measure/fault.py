"""Memory faults in guard pages, told from any other faults.

The page's buffer is named, and the candidate is wrong rather than crashed. The handler
runs Python inside a signal handler. That is acceptable only because the process ends
there, whatever happens: the default action is restored before the handler runs, so a
second fault kills.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable, Sequence

# From asm-generic/signal-defs.h.
_SA_SIGINFO, _SA_RESETHAND = 4, 0x80000000
_SA_NODEFER, _SA_ONSTACK = 0x40000000, 0x08000000
_SI_ADDR_OFFSET = 16  # of si_addr within siginfo_t on 64-bit Linux

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """glibc's struct sigaction on 64-bit Linux."""

    _fields_ = (
        ("handler", _Handler),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def warm_up() -> None:
    """Create a handler and drop it.

    libffi reads the system's mounts before it makes its first one, which a fenced child
    may not.
    """
    _Handler(lambda number, info, context: None)


class GuardWatch:
    """Calls `report(name of the buffer)` when a fault hits one of its guard pages.

    It watches as long as it is alive.
    """

    def __init__(
        self,
        pages: Sequence[tuple[str, int, int]],
        report: Callable[[str], None],
        elsewhere: Callable[[int], None] | None = None,
    ) -> None:
        """`pages`: the buffer's name, the first address and the address past the last, of
        each page.

        `report` must end the process: otherwise the faulting instruction is executed
        again, and kills. `elsewhere` is called with the signal of any other fault.
        """

        def handle(number: int, info: int, context: int) -> None:
            address = ctypes.c_uint64.from_address(info + _SI_ADDR_OFFSET).value
            for name, first, end in pages:
                if first <= address < end:
                    report(name)
            if elsewhere is not None:
                elsewhere(number)

        self._handler = _Handler(handle)
        flags = _SA_SIGINFO | _SA_RESETHAND | _SA_NODEFER | _SA_ONSTACK
        action = _Action(handler=self._handler, flags=ctypes.c_int(flags - (1 << 32)).value)
        libc = ctypes.CDLL(None, use_errno=True)
        for number in (signal.SIGSEGV, signal.SIGBUS):
            if libc.sigaction(int(number), ctypes.byref(action), None) != 0:
                raise OSError(ctypes.get_errno(), f"sigaction({number})")
