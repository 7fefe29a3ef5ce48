"""The library of a region of a traced model: tuned, linked, and run once in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.app.jobs.lifecycle import run
from tuner.app.machine import checked_target, first_lane, with_limits
from tuner.app.models.command_time import CommandTime
from tuner.app.models.region_service import kernels_by_service
from tuner.app.models.tuned_model import policy_of, submit_model
from tuner.app.platforms.table import measuring_platform
from tuner.db import jobs
from tuner.db.engine import open_database
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.executors.checking import run_library
from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.graph import Graph
from tuner.models.graph_archive import packed
from tuner.models.library.library import ModelNumbers, model_kernel, with_replaced_inputs
from tuner.models.library.region_cache import SYMBOL
from tuner.models.passes.fusion import fuse
from tuner.models.passes.pairs import with_small_pairs
from tuner.models.passes.parts import in_parts
from tuner.models.passes.substitutions import Substitution, with_substitutions
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.tuning.chain_race import race_chains
from tuner.models.tuning.numerics import NumericsPolicy
from tuner.runtime.interfaces import DLPACK_EXCHANGE
from tuner.runtime.link import link
from tuner.scratch import temporary_folder
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workers.jobs.model_library import Model, kernels_of
from tuner.workers.jobs.model_numerics import with_numerics
from tuner.workers.jobs.orchestrator import Interrupt
from tuner.workers.jobs.progress import Observer, unobserved


class RegionNotTuned(TunerError):
    """A region's job ended without kernels for all of its parts."""

    code = "no_kernel"


def region_library(
    traced: Graph,
    settings: Settings,
    *,
    observer: Observer = unobserved,
    interrupt: Interrupt = lambda: None,
) -> bytes:
    """The shared library with the function `region_run` of a graph before fusion.

    The settings have the budget, and the service where one is to search. Each kernel is
    verified where it was searched; the outputs are for the caller to compare, who has the
    region's inputs. Raises RegionNotTuned, what a job or a client raises, and ModelRefused
    where a call fails.
    """
    command = CommandTime(seconds=settings.seconds)
    graph, policy, threads = fuse(traced), policy_of(settings), settings.threads
    machine = checked_target(settings)
    if settings.server:
        kernels = kernels_by_service(traced, graph, policy, machine, settings, observer, interrupt)
        return _linked(graph, kernels, machine, settings, policy)
    if not machine.on_device:
        graph = with_small_pairs(graph)
    if threads == 1 and not machine.on_device:  # several would meet at the end of each part
        graph = in_parts(graph, machine.l2_bytes)
    database = open_database(settings.db)
    try:
        target = with_limits(database, machine)
        model = Model(content=packed(graph), shapes={}, graph=graph)
        (model,) = command.with_chains([model], target)
        job = submit_model(database, [model], target, settings, seconds=command.tuning_s([model]))
        report = run(database, job.id, settings, observer=observer, interrupt=interrupt)
        if report.job.state != jobs.SUCCEEDED:
            raise RegionNotTuned(f"job {job.id} of a region {report.job.state}: {report.job.error}")
        store = ArtifactStore(settings.artifacts)
        kernels = kernels_of(database, model, target, threads, store, policy)
    finally:
        database.close()
    return _linked(graph, kernels, target, settings, policy, model.chains)


def _linked(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    target: Target,
    settings: Settings,
    policy: NumericsPolicy,
    chains: Sequence[Substitution] = (),
) -> bytes:
    """The library of these kernels, which was run once; chains are one where that is faster."""
    if target.on_device:
        return _linked_for_gpu(graph, kernels, target, settings)
    threads = settings.threads
    cores = first_lane(settings, threads).cores
    machine, inputs = ConfinedCalls(cores), check_inputs(graph, {})
    if policy.fast:
        graph, _ = with_numerics(graph, kernels, target, threads, policy, machine, {})
    race = race_chains(graph, kernels, chains, target, threads, inputs, machine)
    if race is not None:
        graph = with_substitutions(graph, race.chosen)
    built = model_kernel(graph, kernels, target, threads, SYMBOL, ModelNumbers())
    function = with_replaced_inputs(function_of(built), graph)
    library = link("region", [function], interfaces=(DLPACK_EXCHANGE,))
    with temporary_folder("tuner-scratch-region-") as folder:
        path = folder / "region.so"
        path.write_bytes(library)
        run_library(path, SYMBOL, inputs, cores)
    return library


def _linked_for_gpu(
    graph: Graph, kernels: Mapping[str, ExportKernel], target: Target, settings: Settings
) -> bytes:
    """Likewise, of a GPU of this machine: a call is one CUDA graph."""
    threads = settings.threads
    with measuring_platform(target, settings).executor(target, settings, threads) as executor:
        executor.refuse(graph)
        built = executor.build(graph, kernels, target, threads, SYMBOL, ModelNumbers())
        library = executor.link(built)
        with temporary_folder("tuner-scratch-region-") as folder:
            path = folder / "region.so"
            path.write_bytes(library)
            executor.run(path, SYMBOL, check_inputs(graph, {}))
    return library
