"""What is wrong with a model, said once and with the way out."""

from __future__ import annotations

from tuner.errors import UsageError


class ModelRefused(UsageError):
    """A file that is no model, or a model that cannot be taken: exit code 2, HTTP 422;
    nothing was written."""

    code = "invalid_model"
