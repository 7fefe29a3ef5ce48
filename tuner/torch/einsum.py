"""`tuner.torch.einsum`: products of tensors by kernels that read them as they lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tuner.torch.products import Products


class Einsum:
    """Computes products. What it needs for that is loaded with the first of them."""

    def __call__(
        self,
        subscripts: str,
        *tensors: torch.Tensor,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> torch.Tensor:
        """The product of tensors that `subscripts` say, as `torch.einsum` has them.

        A product of two tensors is one kernel, without permuted copies; more are multiplied
        in pairs. `mode` and `options` are those of the backend `tuner`, and so is the way to
        a kernel: PyTorch computes the product until there is one that computes the same, and
        no slower. PyTorch also computes what needs gradients or is traced, tensors off the
        CPU, with gaps in memory, of several dtypes, and without elements.

        Raises UsageError for subscripts that do not fit the tensors, and for options that
        the backend does not have.
        """
        if torch.compiler.is_compiling() or not all(map(_is_plain, tensors)):
            return torch.einsum(subscripts, *tensors)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return torch.einsum(subscripts, *tensors)
        return self._products.product(subscripts, tensors, mode, options)

    @cached_property
    def _products(self) -> Products:
        from tuner.torch.products import Products  # noqa: PLC0415  # with the first product

        return Products()


def _is_plain(tensor: Any) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.is_cpu
        and tensor.layout == torch.strided
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


einsum = Einsum()
