"""Discrete Fourier transforms, as products with constant matrices.

Complex numbers are a last dimension of two, real numbers one of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.models.operators.contraction import einsum
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import along, reshape, transpose
from tuner.models.operators.scalars import Elem
from tuner.models.operators.values import Value

_MOST_ELEMENTS = 1 << 25  # of a transform's matrix


def transform(
    extent: int, parts: int, length: int, *, inverse: bool, one_sided: bool
) -> NDArray[np.float64]:
    """What the elements of a dimension, real or complex, add to those of the result:
    [extent, parts, result, its parts]. Raises ValueError for a matrix that is too large."""
    bins = length // 2 + 1 if one_sided and not inverse else length
    if extent * parts * bins * 2 > _MOST_ELEMENTS:
        raise ValueError(f"a Fourier transform of {length} elements; the matrix is too large")
    basis: NDArray[Any] = np.eye(extent, dtype=np.complex128)[:, None, :]
    basis = np.concatenate([basis, basis * 1j][:parts], axis=1)
    if inverse and one_sided:
        return np.fft.irfft(basis, length)[..., None]
    result = np.fft.ifft(basis, length) if inverse else np.fft.fft(basis, length)
    result = result[..., :bins]
    return np.stack([result.real, result.imag], axis=-1)


def dft(x: Value, axis: int, length: int, *, inverse: bool, one_sided: bool) -> Value:
    """Along one axis, cut or filled with zeros to `length`; that of the inverse is the
    result's. With `one_sided` only the bins that a real signal needs are given, or read."""
    bins = length // 2 + 1 if one_sided and inverse else length
    extent = min(x.shape[axis], bins)
    matrix = transform(extent, x.shape[-1], length, inverse=inverse, one_sided=one_sided)
    factors = x.builder.constant(matrix, x.computed_in)
    signal = along(x, axis, 0, extent)
    others = [number for number in range(x.rank - 1) if number != axis]
    rows = transpose(signal, [*others, axis, x.rank - 1])
    letters = "abdefgh"[: len(others)]
    result = einsum(f"{letters}nc,nckr->{letters}kr", rows, factors)
    order = list(range(len(others)))
    order.insert(axis, len(others))
    return transpose(result, [*order, x.rank - 1])


def stft(x: Value, step: int, length: int, window: Value | None, *, one_sided: bool) -> Value:
    """Of signals [batch, time, parts]: the transforms of frames of `length` elements, `step`
    apart, times a window; [batch, frame, bin, 2]. No frame reaches beyond the end."""
    frames = 1 + (x.shape[1] - length) // step
    matrix = transform(length, x.shape[2], length, inverse=False, one_sided=one_sided)
    factors = x.builder.constant(matrix, x.computed_in)
    if window is not None:
        shape = [length, 1, 1, 1]
        factors = elementwise("window", lambda f, w: f * w, factors, reshape(window, shape))

    def body(b: Elem, f: Elem, k: Elem, r: Elem, n: Elem, c: Elem) -> Elem:
        return x[b, f * step + n, c] * factors[n, c, k, r]

    shape = [x.shape[0], frames, *matrix.shape[2:]]
    return x.builder.reduce("stft", "sum", shape, [length, x.shape[2]], body, dtype=x.dtype)
