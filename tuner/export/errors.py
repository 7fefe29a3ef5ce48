"""Errors of exports and of exported directories."""

from __future__ import annotations

from tuner.errors import TunerError, UsageError


class ExportRefused(UsageError):
    """A request that cannot be met: a bad name, no kernels, a directory that is no export."""

    code = "export_refused"


class ExportError(TunerError):
    """The export could not be written. Nothing was left behind."""

    code = "export_failed"


class SigningKeyError(TunerError):
    """The private key that signs exports cannot be read or made, or others may read it.

    Nothing was exported.
    """

    code = "signing_key"


class ManifestError(TunerError):
    """A directory that is no export, or an export with missing, altered or outside files."""

    code = "invalid_export"
