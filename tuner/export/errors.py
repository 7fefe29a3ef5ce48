"""Why an export or an exported directory is not accepted."""

from __future__ import annotations

from tuner.errors import TunerError, UsageError


class ExportRefused(UsageError):
    """The request cannot be met as asked: a bad name, no kernels, a directory that is
    not ours to replace."""

    code = "export_refused"


class ExportError(TunerError):
    """The export could not be written; nothing was left behind."""

    code = "export_failed"


class SigningKeyError(TunerError):
    """The private key that signs exports cannot be read or made, or is not safe from
    others; nothing was exported."""

    code = "signing_key"


class ManifestError(TunerError):
    """A directory that is no export, or one whose files are missing, altered or named out of it."""

    code = "invalid_export"
