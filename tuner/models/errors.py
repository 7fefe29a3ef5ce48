"""The error of a model that cannot be imported, checked or run."""

from __future__ import annotations

from tuner.errors import UsageError


class ModelRefused(UsageError):
    """A file that is no model, or a model that is not supported.

    Exit code 2, HTTP 422. Nothing was written.
    """

    code = "invalid_model"


class NotEvaluated(ModelRefused):
    """ONNX's reference evaluator has no such operator, or fails at it."""
