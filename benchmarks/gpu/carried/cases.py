"""Inputs, truth and rivals of each race of an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Case:
    """Inputs of a race, the float64 result, and PyTorch's ways to compute it.

    `magnitude` is what errors are relative to.
    """

    def __init__(
        self,
        inputs: list[Any],
        want: Any,
        magnitude: Any,
        rivals: dict[str, Callable[[], Any]],
        dtype: Any = None,
    ) -> None:
        """`dtype`: of the output; None: that of the first input."""
        self.inputs, self.want, self.magnitude, self.rivals = inputs, want, magnitude, rivals
        self.dtype = inputs[0].dtype if dtype is None else dtype


def matmul(torch: Any, race: dict[str, Any], dtype: Any) -> Case:
    m, n, k = (race["sizes"][name] for name in "MNK")
    a, b = (
        torch.randn(m, k, device="cuda", dtype=dtype),
        torch.randn(k, n, device="cuda", dtype=dtype),
    )
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    want, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    return Case([a, b], want, magnitude, {"torch (cuBLAS)": lambda: torch.mm(a, b, out=out)})


def bytes_product(torch: Any, race: dict[str, Any]) -> Case:
    """A dense layer of integers of 8 bits, whose sums are exact."""
    m, n, k = (race["sizes"][name] for name in "MNK")
    x, w = (torch.randint(-128, 128, (rows, k), device="cuda", dtype=torch.int8) for rows in (m, n))
    want = x.double() @ w.double().t()
    rivals = {"torch (cuBLAS)": lambda: torch._int_mm(x, w.t())}
    return Case([x, w], want, torch.ones_like(want), rivals, torch.int32)


def byte_floats_product(torch: Any, race: dict[str, Any]) -> Case:
    """A dense layer of floats of 8 bits (E4M3), scaled and rounded to bfloat16.

    Kernels take their bytes. The library adds up its short sums in float32, as they do.
    """
    m, n, k = (race["sizes"][name] for name in "MNK")
    x, w = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    scale, unit = (torch.full((1,), value, device="cuda") for value in (0.5, 1.0))
    left, right = x.float().double() * 0.5, w.float().double().t()

    def scaled() -> Any:
        return torch._scaled_mm(x, w.t(), scale, unit, out_dtype=torch.bfloat16)

    return Case(
        [x.view(torch.uint8), w.view(torch.uint8), scale],
        left @ right,
        left.abs() @ right.abs(),
        {"torch (cuBLASLt)": scaled},
        torch.bfloat16,
    )


def tf32_product(torch: Any, race: dict[str, Any]) -> Case:
    """A dense layer of float32, which the library may multiply as tf32 too."""
    m, n, k = (race["sizes"][name] for name in "MNK")
    x, w = (torch.randn(rows, k, device="cuda") for rows in (m, n))
    out = torch.empty(m, n, device="cuda")
    want, magnitude = x.double() @ w.double().t(), x.double().abs() @ w.double().abs().t()
    torch.backends.cuda.matmul.allow_tf32 = True
    return Case([x, w], want, magnitude, {"torch (cuBLAS)": lambda: torch.mm(x, w.t(), out=out)})


def convolution(torch: Any, race: dict[str, Any], dtype: Any) -> Case:
    size = race["sizes"]
    x = torch.randn(size["N"], size["H"], size["W"], size["CI"], device="cuda", dtype=dtype)
    w = torch.randn(3, 3, size["CI"], size["CO"], device="cuda", dtype=dtype)  # HWIO
    image = x.permute(0, 3, 1, 2)  # channels last in memory, as it is
    weights = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    stride = size.get("stride", 1)

    def conv(left: Any, right: Any) -> Any:
        return torch.nn.functional.conv2d(left, right, padding=1, stride=stride)

    def exact(left: Any, right: Any) -> Any:
        return conv(left.double(), right.double()).permute(0, 2, 3, 1).contiguous()

    torch.backends.cudnn.benchmark = True
    want, magnitude = exact(image, weights), exact(image.abs(), weights.abs())
    return Case([x, w], want, magnitude, {"torch (cuDNN)": lambda: conv(image, weights)})


def rowwise(torch: Any, race: dict[str, Any], what: str) -> Case:
    m, n = race["sizes"]["M"], race["sizes"]["N"]
    f = torch.nn.functional
    x = torch.randn(m, n, device="cuda")
    if what == "softmax":
        want = torch.softmax(x.double(), 1)
        magnitude = want * (1 + x.double().abs() + x.double().abs().amax(1, keepdim=True))
        return Case([x], want, magnitude, {"torch": lambda: torch.softmax(x, 1)})
    if what == "layer_norm":
        gamma, beta = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        want = f.layer_norm(x.double(), (n,), gamma.double(), beta.double())
        spread = x.double().abs() + x.double().abs().mean(1, keepdim=True)
        scale = (x.double().var(1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        magnitude = 3 * spread * scale * gamma.double().abs() + beta.double().abs()
        return Case(
            [x, gamma, beta], want, magnitude, {"torch": lambda: f.layer_norm(x, (n,), gamma, beta)}
        )
    bias = torch.randn(n, device="cuda")
    want = f.gelu(x.double() + bias.double())
    magnitude = 2 * (x.double().abs() + bias.double().abs()) + 1e-6
    return Case([x, bias], want, magnitude, {"torch": lambda: f.gelu(x + bias)})


def make(torch: Any, race: dict[str, Any]) -> Case:
    kind, dtype = race["kind"], getattr(torch, race["dtype"])
    if kind == "matmul":
        return matmul(torch, race, dtype)
    if kind == "bytes_product":
        return bytes_product(torch, race)
    if kind == "byte_floats_product":
        return byte_floats_product(torch, race)
    if kind == "tf32_product":
        return tf32_product(torch, race)
    if kind == "convolution":
        return convolution(torch, race, dtype)
    return rowwise(torch, race, kind)
