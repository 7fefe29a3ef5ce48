"""Guarded buffers: aligned, poisoned, with canaries that tell and pages that fault."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import multiprocessing
import signal

import numpy as np
import pytest

from tuner.runtime.guard import GuardedBuffer


@pytest.mark.parametrize("edge", ["begin", "end"])
@pytest.mark.parametrize(("shape", "dtype"), [((3, 5), "float32"), ((1024,), "float64"), ((4097,), "int8"), ((), "bfloat16")])
def test_buffers_are_aligned_and_touch_their_guard(edge: str, shape: tuple[int, ...], dtype: str) -> None:
    with GuardedBuffer(shape, dtype, edge="begin" if edge == "begin" else "end") as buffer:
        address, size = buffer.array.ctypes.data, buffer.array.nbytes
        assert address % 64 == 0
        assert buffer.array.shape == shape
        if edge == "begin":
            assert address % mmap.PAGESIZE == 0
        else:
            assert -(address + size) % mmap.PAGESIZE < 64
        buffer.poison(0xFF)
        assert (buffer.array.reshape(-1).view(np.uint8) == 0xFF).all()
        assert buffer.intact()


@pytest.mark.parametrize(("edge", "offset"), [("begin", 60), ("end", 60), ("end", -1)])
def test_a_stray_write_near_the_array_breaks_the_canary(edge: str, offset: int) -> None:
    with GuardedBuffer((15,), "float32", edge="begin" if edge == "begin" else "end") as buffer:
        ctypes.memset(buffer.array.ctypes.data + offset, 0, 1)
        assert not buffer.intact()


def read_at(edge: str, offset: int) -> None:
    faulthandler.disable()  # the fault is expected; no report
    with GuardedBuffer((16,), "float32", edge="begin" if edge == "begin" else "end") as buffer:
        ctypes.string_at(buffer.array.ctypes.data + offset, 1)


@pytest.mark.parametrize(("edge", "offset"), [("begin", -1), ("end", 64)])
def test_a_read_beyond_the_guarded_edge_faults(edge: str, offset: int) -> None:
    child = multiprocessing.get_context("fork").Process(target=read_at, args=(edge, offset))
    child.start()
    child.join(timeout=30)
    assert child.exitcode == -signal.SIGSEGV


def test_closing_twice_is_fine_and_asking_afterwards_is_not() -> None:
    buffer = GuardedBuffer((4,), "float32")
    buffer.close()
    buffer.close()
    with pytest.raises(ValueError, match="closed"):
        buffer.intact()


def test_too_large_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="guarded buffer"):
        GuardedBuffer((1 << 60,), "float32")
