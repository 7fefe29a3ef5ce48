"""A device function of a cubin that was not linked into a library."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_uint64, c_void_p

from tuner.runtime.cuda_driver import CudaError, call

NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND
_INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE
_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MOST_PARAMETERS = 1024  # the driver has at most 32,764 bytes of them


class DeviceKernel:
    """A device function in the current context, with the dimensions of its launches."""

    def __init__(
        self,
        code: bytes,
        name: str,
        *,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
    ) -> None:
        """`code` is a cubin. Raises CudaError, NOT_FOUND where it has no such function."""
        module, self._function = c_void_p(), c_void_p()
        call("cuModuleLoadData", byref(module), code)
        call("cuModuleGetFunction", byref(self._function), module, name.encode())
        if shared_bytes > 0:
            call("cuFuncSetAttribute", self._function, _DYNAMIC_SHARED_BYTES, shared_bytes)
        self._dimensions = (*grid, *block, shared_bytes)

    @property
    def parameter_bytes(self) -> tuple[int, ...]:
        """The size of each parameter. Raises NoDriver for a driver that cannot tell."""
        sizes: list[int] = []
        offset, size = c_size_t(), c_size_t()
        while len(sizes) < _MOST_PARAMETERS:
            try:
                call("cuFuncGetParamInfo", self._function, len(sizes), byref(offset), byref(size))
            except CudaError as error:
                if error.number != _INVALID_VALUE:
                    raise
                break  # beyond the last one
            sizes.append(size.value)
        return tuple(sizes)

    def launch(self, addresses: Sequence[int], stream: int = 0) -> None:
        """Put a launch on a stream. The kernel must take as many addresses, and nothing else."""
        values = [c_uint64(address) for address in addresses]
        pointers = (c_void_p * len(values))(*map(ctypes.addressof, values))
        call("cuLaunchKernel", self._function, *self._dimensions, stream, pointers, None)
