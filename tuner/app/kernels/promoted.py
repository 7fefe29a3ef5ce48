"""`Promoted`: what a promoted kernel says of itself, whatever it runs on."""

from __future__ import annotations

from pathlib import Path

from tuner.db.kernels import Kernel as StoredKernel
from tuner.export.artifacts import ArtifactStore
from tuner.spaces.core.space import Config
from tuner.workload.workload import Workload


class Promoted:
    """A verified kernel as the database has it, with its compiled library.

    Its numbers are those of the race it won.
    """

    symbol: str  # of its function in the library

    def __init__(
        self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore
    ) -> None:
        """Raises ArtifactMissing or ArtifactCorrupt if the store lacks the library."""
        self.stored = stored
        self.workload = workload
        self.path: Path = artifacts.verify(stored.artifact)  # of the compiled library

    @property
    def id(self) -> str:
        """The kernel's id in the database."""
        return self.stored.id

    @property
    def config(self) -> Config:
        """The winning config; empty where the default schedule won."""
        return self.stored.config

    @property
    def median_s(self) -> float:
        """Seconds of one call, median of the race it won."""
        return self.stored.median_s

    @property
    def ci95_s(self) -> tuple[float, float]:
        """95% confidence interval of that median, seconds."""
        return self.stored.ci95_s

    @property
    def default_median_s(self) -> float | None:
        """Seconds of the default schedule in the same race."""
        return self.stored.default_median_s

    @property
    def verified(self) -> bool:
        """Whether it gave right answers on unseen inputs."""
        return self.stored.verified
