"""What networks lose where the operands of their products are rounded to 16 bits.

    python -m benchmarks.models.roundings [--only bert-base,resnet-50]

Products and convolutions are PyTorch's, of rounded operands with sums in float32. A row
has the greatest error of the output beside its greatest value, for bfloat16 and float16.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.models.networks import NETWORKS, WHOLE

ATEN = torch.ops.aten
# The operands that are rounded, by their places.
PRODUCTS: dict[Any, tuple[int, ...]] = {
    ATEN.convolution.default: (0, 1),
    ATEN.mm.default: (0, 1),
    ATEN.bmm.default: (0, 1),
    ATEN.addmm.default: (1, 2),
    ATEN._scaled_dot_product_flash_attention_for_cpu.default: (0, 1, 2),
}


class Rounded(TorchDispatchMode):  # type: ignore[misc]
    """Rounds the operands of products to a dtype while it is entered."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.products = dtype, 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        places = PRODUCTS.get(function, ())
        self.products += bool(places)
        given = [
            value.to(self.dtype).to(value.dtype) if place in places else value
            for place, value in enumerate(args)
        ]
        return function(*given, **(kwargs or {}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(WHOLE))
    print("| network | products | bfloat16 | float16 |\n|---|---|---|---|")
    for name in parser.parse_args().only.split(","):
        network, inputs = NETWORKS[name].built()
        errors = []
        with torch.no_grad():
            right = network(*inputs)
            for dtype in (torch.bfloat16, torch.float16):
                with Rounded(dtype) as mode:
                    error = (network(*inputs) - right).abs().max() / right.abs().max()
                errors.append(f"{float(error):.1e}")
        print(f"| {name} | {mode.products} | {' | '.join(errors)} |", flush=True)


if __name__ == "__main__":
    main()
