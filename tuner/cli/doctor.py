"""`tuner doctor`: checks of this machine, each problem with its way out."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import typer

from tuner.cli.exits import Exit
from tuner.cli.invocation import Invocation
from tuner.errors import TunerError
from tuner.settings import ENVIRONMENT_PREFIX, Settings

# The versions pyproject.toml pins because others were seen to fail.
PINNED = {
    "apache-tvm": "0.27.0.post1",
    "apache-tvm-ffi": "0.1.14.post1",
    "ray": "2.60.0",
    "xgboost-cpu": "3.2.0",
}
FREE_BYTES_WANTED = 2 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    status: Literal["ok", "warning", "failed"]
    detail: str  # what was seen and, unless ok, the way out


def doctor(context: typer.Context) -> None:
    """Checks compiler, packages, cores, database, disk and settings; exit code 1 when
    tuning cannot work here."""
    invocation = Invocation.here(context)
    checks: tuple[Callable[[Invocation], Finding], ...] = (
        _python,
        _packages,
        _compiler,
        _target,
        _gpus,
        _cores,
        _database,
        _disk,
        _environment,
    )
    findings = [check(invocation) for check in checks] + _isolation(invocation)
    if invocation.output.as_json:
        invocation.output.document(
            {
                "findings": [
                    {"check": finding.check, "status": finding.status, "detail": finding.detail}
                    for finding in findings
                ],
                "ok": all(finding.status != "failed" for finding in findings),
            }
        )
    else:
        invocation.output.table(
            ("check", "status", "detail"),
            [(finding.check, finding.status, finding.detail) for finding in findings],
        )
    if any(finding.status == "failed" for finding in findings):
        raise typer.Exit(Exit.FAILED)


def _python(invocation: Invocation) -> Finding:
    return Finding(
        check="python", status="ok", detail=f"{platform.python_version()} on {platform.platform()}"
    )


def _packages(invocation: Invocation) -> Finding:
    wrong = []
    for name, pinned in PINNED.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = "missing"
        if installed != pinned:
            wrong.append(f"{name} is {installed}, {pinned} is needed")
    if wrong:
        return Finding(
            check="packages",
            status="failed",
            detail="; ".join(wrong) + "; install the project again with pip",
        )
    return Finding(
        check="packages",
        status="ok",
        detail=", ".join(f"{name} {pinned}" for name, pinned in PINNED.items()),
    )


def _compiler(invocation: Invocation) -> Finding:
    compiler = (
        os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    )
    if compiler is None:
        return Finding(
            check="compiler",
            status="failed",
            detail="no C compiler on PATH; install gcc or clang, or set CC",
        )
    return Finding(check="compiler", status="ok", detail=compiler)


def _target(invocation: Invocation) -> Finding:
    from tuner.target.detect import detect_cpu

    try:
        target = detect_cpu()
    except TunerError as error:
        return Finding(check="target", status="failed", detail=str(error))
    caches = (
        f"L1d {target.l1d_bytes >> 10} KiB, L2 {target.l2_bytes >> 10} KiB, L3 "
        f"{target.l3_bytes >> 10} KiB"
    )
    return Finding(
        check="target",
        status="ok",
        detail=f"{target.name}; vectors of {target.vector_bytes} bytes; {caches}",
    )


def _gpus(invocation: Invocation) -> Finding:
    from tuner.lowering.cuda.nvcc import find_nvcc
    from tuner.measure.gpu.visible import visible_gpus
    from tuner.runtime.nvrtc import find_nvrtc, header_folders

    compiler = find_nvcc() or (find_nvrtc() if header_folders() else None)
    missing = "; kernels for GPUs need nvcc or NVRTC: pip install 'tuner[cuda]', or set CUDA_HOME"
    try:
        gpus = [gpu.target.name for gpu in visible_gpus()]
    except TunerError as error:
        return Finding(
            check="gpu", status="ok", detail=f"none: {error}; compiler {compiler or 'none'}"
        )
    if not gpus:
        return Finding(
            check="gpu",
            status="ok",
            detail=f"none: the driver shows no device; compiler {compiler or 'none'}",
        )
    detail = f"{', '.join(gpus)}; compiler {compiler or 'none'}{'' if compiler else missing}"
    return Finding(check="gpu", status="ok" if compiler else "warning", detail=detail)


def _cores(invocation: Invocation) -> Finding:
    usable = len(os.sched_getaffinity(0))
    threads = invocation.settings().values.threads
    if threads > usable:
        detail = (
            f"{usable} usable, fewer than the {threads} threads of the setting; lower "
            f"threads to at most {usable}"
        )
        return Finding(check="cores", status="failed", detail=detail)
    if threads == usable:
        detail = (
            f"{usable} usable, all for measuring {threads} threads: building and measuring "
            f"take turns"
        )
        return Finding(check="cores", status="warning" if usable == 1 else "ok", detail=detail)
    return Finding(check="cores", status="ok", detail=f"{usable} usable, {threads} to measure on")


def _database(invocation: Invocation) -> Finding:
    from tuner.db.engine import open_database

    url = invocation.settings().values.db
    try:
        opened = open_database(url)
        opened.ping()
    except TunerError as error:
        return Finding(check="database", status="failed", detail=str(error))
    shown = opened.url
    opened.close()
    return Finding(check="database", status="ok", detail=shown)


def _disk(invocation: Invocation) -> Finding:
    folder = invocation.settings().values.artifacts
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    detail = f"{free / 2**30:.1f} GiB free for {folder}"
    if not os.access(existing, os.W_OK):
        return Finding(
            check="artifacts",
            status="failed",
            detail=f"{existing} is not writable; set artifacts to a folder that is",
        )
    if free < FREE_BYTES_WANTED:
        return Finding(
            check="artifacts",
            status="warning",
            detail=f"{detail}; at least {FREE_BYTES_WANTED >> 30} GiB are advised",
        )
    return Finding(check="artifacts", status="ok", detail=detail)


def _isolation(invocation: Invocation) -> list[Finding]:
    """How candidates would be isolated, one finding for each mechanism."""
    from tuner.measure.sandbox.isolation import isolation_report

    try:
        rows = isolation_report(invocation.settings().values.isolation)
    except (TunerError, OSError) as error:
        return [Finding(check="isolation", status="failed", detail=str(error))]
    return [Finding(check=row.check, status=row.status, detail=row.detail) for row in rows]


def _environment(invocation: Invocation) -> Finding:
    settings = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields}
    unknown = sorted(
        name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX) and name not in settings
    )
    if unknown:
        return Finding(
            check="settings",
            status="warning",
            detail=f"{', '.join(unknown)} set but unknown; see docs/reference/settings.md",
        )
    files = ", ".join(str(path) for path in invocation.settings().files) or "no settings file"
    return Finding(check="settings", status="ok", detail=files)
