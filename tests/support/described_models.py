"""Jobs of models as workers leave them: described, measured, with a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.db import artifacts
from tuner.db.engine import Session
from tuner.db.tasks import DESCRIPTION, LIBRARY, MEASUREMENT
from tuner.export.artifacts import ArtifactStore
from tuner.models.description import Description, KernelTime, Measurement, Step, to_json
from tuner.workload.expression import Tensor


def description(kernels: Sequence[str], *, steps: int, inputs: Sequence[Tensor]) -> Description:
    """A chain of steps, of which every third reads what came three before it, too.

    Steps have the kernels by turns. The first reads all inputs, the last is the output.
    """
    hidden = [Tensor(name=f"t{n}", shape=(2, 3), dtype="float32") for n in range(steps)]
    weights = Tensor(name="c0", shape=(3, 3), dtype="float32")
    return Description(
        inputs=tuple(inputs),
        outputs=(Tensor(name="y", shape=(2, 3), dtype="float32"),),
        steps=tuple(
            Step(
                kernel=kernels[n % len(kernels)],
                name=f"step{n % len(kernels)}",
                numerics="fast" if n % 2 else "strict",
                calls=32 if n == 1 else 1,
                reads=(*(inputs if n == 0 else hidden[n - 1 : n]), weights),
                constants=("c0",),
                writes=(hidden[n],),
                after=((n - 3, n - 1) if n > 2 and n % 3 == 0 else (n - 1,)) if n else (),
                inputs=tuple(range(len(inputs))) if n == 0 else (),
                outputs=(0,) if n == steps - 1 else (),
            )
            for n in range(steps)
        ),
        constants_bytes=36,
        activations_bytes=128,
    )


def measurement(kernels: Sequence[str]) -> Measurement:
    """The n-th kernel takes n times as long as the first."""
    return Measurement(
        median_s=3e-3,
        ci95_s=(2.9e-3, 3.1e-3),
        max_rel_error=2e-6,
        kernels={
            key: KernelTime(inside_s=n * 1e-5, peak_fraction=0.5)
            for n, key in enumerate(kernels, 1)
        },
    )


def settings(
    session: Session,
    store: ArtifactStore,
    described: Description | None,
    measured: Measurement | None = None,
) -> Mapping[str, Any]:
    """Settings of a model's job; with a measurement there is a library, too."""
    kept: dict[str, Any] = {}
    if described is not None:
        kept[DESCRIPTION] = put(session, store, to_json(described), "description")
    if measured is not None:
        kept[LIBRARY] = put(session, store, b"archive", "export")
        kept[MEASUREMENT] = asdict(measured)
    return kept


def put(session: Session, store: ArtifactStore, content: bytes, kind: str) -> str:
    digest = store.put(content)
    return artifacts.remember(session, sha256=digest, size_bytes=len(content), kind=kind)
