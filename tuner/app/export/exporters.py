"""Libraries exported for each kind of target: one function each, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.app.export.cuda import export_cuda_kernels
from tuner.app.export.kernels import export_kernels
from tuner.app.export.portfolio import portfolio_kernel
from tuner.app.machine import checked_target, named_target
from tuner.db import targets
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.export.signature import KEY_FILE
from tuner.settings import Settings
from tuner.target.capability import is_declared
from tuner.target.target import Target
from tuner.workers.jobs.kernel_descriptions import Widen
from tuner.workload.spec import Portfolio

HOST_KIND = "cpu"
NAME = "tuned"  # of a library that nobody named


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRequest:
    """What a library is to hold, and where it goes."""

    kernels: Sequence[Kernel]
    families: Sequence[Portfolio]  # each becomes one function
    directory: Path
    name: str | None  # a C identifier; None: NAME
    isa: str | None  # levels of x86-64 to compile for too, with commas
    frameworks: tuple[str, ...] = ()  # of tuner.export.frameworks, that it is for too


# (database, request, settings): writes the library and returns the manifest's document
Exporter = Callable[[Database, LibraryRequest, Settings], Mapping[str, Any]]


def export_library_of(
    database: Database, request: LibraryRequest, settings: Settings
) -> Mapping[str, Any]:
    """Writes the library, whole or not at all, and returns the manifest's document.

    Raises UsageError for kernels of several kinds of target, which no one library can
    hold, and what the kind's exporter raises.
    """
    return EXPORTERS[_kind(database, request.kernels)](database, request, settings)


def _kind(database: Database, kernels: Sequence[Kernel]) -> str:
    """The kind of target of all these kernels; that of CPUs where there are none."""
    with database.read() as session:
        machines = {kernel.id: targets.get(session, kernel.target) for kernel in kernels}
    on_devices = [kernel for kernel, target in machines.items() if target.on_device]
    if on_devices and len(on_devices) < len(machines):
        raise UsageError(
            f"{', '.join(on_devices)} are for GPUs and the others are not; export them into a "
            f"library of their own"
        )
    return next((target.kind for target in machines.values()), HOST_KIND)


def _export_for_cpus(
    database: Database, request: LibraryRequest, settings: Settings
) -> Mapping[str, Any]:
    """A library of kernels and portfolios, with variants for lesser CPUs. Signed."""
    store = ArtifactStore(settings.artifacts)
    machine = _machine(settings) if request.families or request.isa else None
    with _levels(request.isa, machine, settings) as widen:
        families = [
            portfolio_kernel(database, family, machine, settings.threads, store, widen)
            for family in request.families
            if machine
        ]
        manifest = export_kernels(
            database,
            request.kernels,
            settings.artifacts,
            request.directory,
            request.name or NAME,
            portfolios=families,
            portfolio_target=machine if request.families else None,
            signing_key=settings.data_dir / KEY_FILE,
            widen=widen,
            frameworks=request.frameworks,
        )
    return manifest.document()


def _machine(settings: Settings) -> Target:
    """What portfolios and variants are for: this machine, or a declared CPU.

    Kernels of a declared one are taken from the database, wherever they were measured.
    """
    target = named_target(settings)
    return target if is_declared(target) else checked_target(settings)


def _levels(
    isa: str | None, machine: Target | None, settings: Settings
) -> AbstractContextManager[Widen | None]:
    """What gives kernels variants for lesser CPUs; None where no level was named."""
    if isa is None or machine is None:
        return nullcontext()
    # Loads TVM, which an export without variants does not need.
    from tuner.app.export.variants import VariantMaker, checked_levels  # noqa: PLC0415

    return VariantMaker(checked_levels(isa, machine), machine, settings)


def _export_for_gpus(
    database: Database, request: LibraryRequest, settings: Settings
) -> Mapping[str, Any]:
    """A library of cubins. Raises UsageError for what only libraries for CPUs have."""
    if request.families or request.isa or request.frameworks:
        raise UsageError(
            "ranges, levels of x86-64 and frameworks are for kernels of CPUs; export those of "
            "GPUs without them"
        )
    return export_cuda_kernels(
        database, request.kernels, settings.artifacts, request.directory, request.name or NAME
    )


EXPORTERS: Mapping[str, Exporter] = {HOST_KIND: _export_for_cpus, "cuda": _export_for_gpus}
