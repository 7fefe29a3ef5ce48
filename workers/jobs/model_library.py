"""Builds a model's library from its kernels, checks it against ONNX's evaluator, times it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tuner.db import kernels
from tuner.db.engine import Database
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.export.kernel import Argument, ExportKernel
from tuner.models.errors import NotEvaluated
from tuner.models.executors.executor import Executor
from tuner.models.files.input_shapes import InputShapes
from tuner.models.files.input_values import InputValues
from tuner.models.graph import LARGEST_FIXED, Graph
from tuner.models.importer import import_model, reference_outputs
from tuner.models.library.concurrency import Concurrency
from tuner.models.library.library import ModelNumbers
from tuner.models.passes.substitutions import Substitution, with_substitutions
from tuner.models.reference.accuracy import TOLERANCE, greatest_error, relative_error
from tuner.models.reference.amplification import allowed_error
from tuner.models.reference.bounded_outputs import filled
from tuner.models.reference.check_inputs import check_inputs
from tuner.models.reference.evaluation import evaluate_outputs
from tuner.models.tuning.chain_race import ChainRace, race_chains
from tuner.models.tuning.kernel_race import KernelRace, Others, race_inside
from tuner.models.tuning.numerics import NumericsChoice, NumericsPolicy
from tuner.scratch import temporary_folder
from tuner.target.target import Target
from tuner.workers.jobs.kernel_descriptions import describe, runners_up
from tuner.workers.jobs.model_numerics import (
    example_arrays,
    with_numerics,
)
from tuner.workers.jobs.timeline import versions

Array = np.ndarray[Any, np.dtype[Any]]


class ModelWrong(TunerError):
    """The tuned model does not compute what ONNX's reference evaluator does; it is not exported."""

    code = "wrong_answer"


class ModelUnfinished(TunerError):
    """A kernel of the model is missing: its job has not come to an end."""

    code = "no_kernel"


@dataclass(frozen=True, kw_only=True)
class Model:
    """An imported model and how its outputs are evaluated."""

    content: bytes  # of the ONNX file
    shapes: InputShapes  # what the file leaves open
    graph: Graph
    # given values of inputs, by the file's names
    values: InputValues = field(default_factory=dict)
    # gives the expected outputs; None: ONNX's evaluator does
    evaluate: Callable[[Sequence[Array]], Sequence[Array]] | None = None
    # right outputs for `check_inputs` of the graph and the values; None: to be evaluated
    right: tuple[Array, ...] | None = None
    # chains, and siblings, that are tuned as one too; none where there is no time to compare
    # them inside of it
    chains: tuple[Substitution, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckedModel:
    """A model's function, checked and timed."""

    kernel: ExportKernel
    graph: Graph  # with the numerics of its nodes, and what is faster as one
    kernels: Mapping[str, ExportKernel]  # that it consists of, by the workload's key
    numerics: NumericsChoice | None = None  # None where all nodes had to be strict
    chains: ChainRace | None = None  # where there were any to compare
    race: KernelRace | None = None  # of kernels inside of it, where there was one
    concurrency: Concurrency | None = None  # where it is faster by running nodes side by side


def kernels_of(
    database: Database,
    model: Model,
    target: Target,
    threads: int,
    store: ArtifactStore,
    policy: NumericsPolicy,
) -> dict[str, ExportKernel]:
    """The promoted kernel of each workload, by key; of fast variants and chains those there are.

    Raises ModelUnfinished if one is missing that the model needs.
    """
    described = {}
    with database.read() as session:
        for part in policy.workloads(model.graph, target, model.chains):
            kernel = kernels.find_promoted(session, part.workload.key, target.key, threads)
            if kernel is None and part.instead_of:
                continue
            if kernel is None:
                raise ModelUnfinished(
                    f"{part.workload.spec} of the model has no kernel yet; tune the model again "
                    f"or resume its job"
                )
            described[part.workload.key] = describe(session, kernel, store, answers=False)
    return described


def others_of(
    database: Database,
    promoted: Mapping[str, ExportKernel],
    target: Target,
    threads: int,
    store: ArtifactStore,
) -> Others:
    """What was nearly as fast as each strict kernel when it was promoted for a model.

    The numerics of fast ones were chosen by the errors of the promoted kernels.
    """
    others = {}
    with database.read() as session:
        for key, described in promoted.items():
            kernel = kernels.find_promoted(session, key, target.key, threads)
            if kernel is not None and described.numerics == "strict":
                others[key] = runners_up(session, kernel, described, store)
    return others


def checked_kernel(
    model: Model,
    kernels: Mapping[str, ExportKernel],
    target: Target,
    threads: int,
    name: str,
    executor: Executor,
    policy: NumericsPolicy,
    others: Others | None = None,
    check: Callable[[], None] = lambda: None,
) -> CheckedModel:
    """The model as the function `<name>_run`, checked and timed by the executor.

    Chains race inside of it as one kernel against their nodes, then kernels that are nearly
    as fast, `others`. With several threads independent nodes side by side race against one
    after the other. Without `others` nothing races. Raises ModelWrong for wrong outputs,
    ModelRefused for a failing call, LinkError, and what `check` raises, which is called between
    the steps.
    """
    graph, choice, machine = model.graph, None, executor.switching
    if policy.fast and machine:
        graph, choice = with_numerics(
            graph, kernels, target, threads, policy, machine, model.values
        )
    inputs = check_inputs(model.graph, model.values)
    chains = race = None
    check()
    if machine and others is not None:
        chains = race_chains(graph, kernels, model.chains, target, threads, inputs, machine)
    if chains is not None:
        graph = with_substitutions(graph, chains.chosen)
    check()
    if machine:
        race = race_inside(graph, kernels, others or {}, target, threads, inputs, machine)
    provenance = {"model": sha256(model.content).hexdigest(), "versions": versions()}
    if choice is not None:
        provenance["numerics"] = choice.document
    if chains is not None:
        provenance["chains"] = chains.document
    if race is not None:
        kernels = race.kernels
        provenance["race"] = race.document
    concurrency = None
    check()
    if others is not None:
        concurrency = executor.concurrency(graph, kernels, target, threads, inputs)
    if concurrency is not None:
        provenance["concurrency"] = concurrency.document
    forks = () if concurrency is None else concurrency.forks
    check()
    numbers = ModelNumbers(provenance=provenance)
    built = executor.build(graph, kernels, target, threads, f"{name}_run", numbers, forks)
    built = replace(built, arguments=_with_examples(built.arguments, model))
    with temporary_folder("tuner-scratch-model-") as folder:
        path = folder / "model.so"
        path.write_bytes(executor.link(built))
        kernel = _verified(path, built, model, executor, policy)
    return CheckedModel(
        kernel=kernel,
        graph=graph,
        kernels=kernels,
        numerics=choice,
        chains=chains,
        race=race,
        concurrency=concurrency,
    )


def _with_examples(arguments: Sequence[Argument], model: Model) -> tuple[Argument, ...]:
    """The arguments, with the given values of integer inputs for the examples: a number
    that their formula makes may be none that the model takes."""
    made = []
    for place, argument in enumerate(arguments):
        array = model.values.get(model.graph.labels[place]) if argument.role == "in" else None
        is_integer = "float" not in argument.dtype
        if array is not None and is_integer and array.size <= LARGEST_FIXED:
            made.append(replace(argument, example=tuple(array.reshape(-1).tolist())))
        else:
            made.append(argument)
    return tuple(made)


def _verified(
    path: Path, built: ExportKernel, model: Model, executor: Executor, policy: NumericsPolicy
) -> ExportKernel:
    """The model with its timing, after checks on given inputs and on those of the examples.

    A bound of the user's holds against the evaluation in float64.
    """
    symbol, worst = str(built.symbol), 0.0
    tolerance = policy.tolerance(model.graph)
    expected: tuple[Array, ...] = ()
    given, examples = check_inputs(model.graph, model.values), example_arrays(built)
    first = _right(model, given) if model.right is None else model.right
    for inputs, right in ((given, first), (examples, _right(model, examples))):
        checked = executor.run(path, symbol, inputs)
        error = greatest_error(checked.outputs, right)
        tolerance = allowed_error(model.graph, inputs, tolerance, error)
        worst = max(worst, largest_error(symbol, checked.outputs, right, tolerance))
        if policy.max_error is not None:
            exact = evaluate_outputs(model.graph, inputs)
            worst = max(worst, largest_error(symbol, checked.outputs, exact, policy.max_error))
        expected = tuple(output.astype(np.float64) for output in right)
    peak = max((float(np.abs(output).max(initial=0.0)) for output in expected), default=0.0)
    return replace(
        built,
        median_s=checked.median_s,
        ci95_s=checked.ci95_s,
        verified=True,
        max_rel_error=worst,
        expected=expected,
        tolerance=tolerance * max(1.0, peak),
    )


def _right(model: Model, inputs: Sequence[Array]) -> Sequence[Array]:
    if model.evaluate is not None:
        return model.evaluate(inputs)
    return right_outputs(model, model.graph, inputs, model.shapes)


def right_outputs(
    model: Model, graph: Graph, inputs: Sequence[Array], shapes: InputShapes
) -> Sequence[Array]:
    """The outputs of ONNX's evaluator for these shapes, as the graph has them. Where it does
    not run the model, those of the graph of these shapes in float64."""
    try:
        return filled(graph, reference_outputs(model.content, inputs, shapes, model.values))
    except NotEvaluated:
        if shapes != model.shapes:
            graph = import_model(model.content, shapes, model.values)
        return evaluated(graph, inputs)


def evaluated(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a graph in float64, which may be infinite or none, without warnings."""
    with np.errstate(all="ignore"):
        return evaluate_outputs(graph, inputs)


def largest_error(
    symbol: str, got: Sequence[Array], right: Sequence[Array], tolerance: float = TOLERANCE
) -> float:
    """The largest error of all outputs, as `accuracy.relative_error` has it.

    Raises ModelWrong if it is above the tolerance.
    """
    worst = 0.0
    for number, (output, reference) in enumerate(zip(got, right, strict=True)):
        error = relative_error(output, reference)
        if not error <= tolerance:
            raise ModelWrong(
                f"output {number} of {symbol} is off by {error:.3g} of its greatest value, "
                f"{tolerance:.2g} is allowed; nothing was exported"
            )
        worst = max(worst, error)
    return worst
