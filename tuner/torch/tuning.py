"""The libraries of regions: kept ones, or made now, later or never as the options say."""

from __future__ import annotations

import atexit
import queue
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from weakref import ref

import torch

from tuner.errors import TunerError
from tuner.models.library.region_cache import CacheDamaged, RaceResult, RegionCache, region_key
from tuner.settings import Settings
from tuner.target.detect import parse_target
from tuner.torch.call import RegionCall
from tuner.torch.cuda_native import cuda_native
from tuner.torch.forks import Inherited, ProcessLock
from tuner.torch.frozen_graph import RegionGraph
from tuner.torch.layouts import Layouts
from tuner.torch.making import Making, made
from tuner.torch.native import native
from tuner.torch.notices import TunerWarning
from tuner.torch.options import Options
from tuner.torch.progress import ProgressLine
from tuner.torch.rebuilding import Function

# Libraries for GPUs have strict kernels.
_ON_GPU: Mapping[str, object] = {"target": "cuda", "threads": 1, "numerics": "strict"}


class Background(Inherited):
    """A thread that has one library made after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._lock, self._registered = ProcessLock(), False
        self.after_fork()

    def after_fork(self) -> None:
        """Neither the thread nor its work come through a fork."""
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._unfinished = 0

    def add(self, work: Callable[[], None]) -> None:
        """Does the work after what was added before. It raises nothing."""
        with self._lock:
            if not self._registered:
                atexit.register(self._leave)
                self._registered = True
            self._unfinished += 1
            self._waiting.put(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tuner", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._waiting.get()()
            with self._lock:
                self._unfinished -= 1

    def _leave(self) -> None:
        """Says at the end of a process what it has not waited for."""
        if self._unfinished:
            warnings.warn(
                f"{self._unfinished} regions were still to be tuned when the process ended; the "
                f'next one goes on, or waits for them with the mode "tune-now"',
                TunerWarning,
                stacklevel=1,
            )


@dataclass(frozen=True)
class RegionSupply:
    """The library of one region: from the cache, or tuned as the options say."""

    graph: RegionGraph
    layouts: Layouts
    options: Options
    background: Background

    @cached_property
    def cache(self) -> RegionCache:
        return cache_of(self.options)

    @cached_property
    def key(self) -> str:
        return key_of(self.graph, self.settings)

    @cached_property
    def settings(self) -> Settings:
        return settings_of(self.options, on_gpu=self.layouts.is_on_gpu)

    @cached_property
    def tolerance(self) -> float:
        return max(self.graph.tolerance, self.settings.max_error or 0.0)

    def load(self, path: Path, failed: Callable[[str], Function]) -> Function:
        load = cuda_native if self.layouts.is_on_gpu else native
        return load(path, self.graph, self.layouts, failed)

    def finish(self) -> None:
        if self.layouts.is_on_gpu:
            torch.cuda.synchronize()

    def discard(self) -> None:
        self.cache.discard(self.key)

    def note(self, race: RaceResult) -> None:
        self.cache.note(self.key, race)

    def begin(self, call: RegionCall) -> None:
        try:
            path = self.cache.find(self.key)
        except CacheDamaged as error:
            self.discard()
            call.give_up("cache", f"{error}; the next process will")
            return
        except TunerError as error:  # of a GPU that the driver does not have
            call.give_up("target", f"it stays with PyTorch: {error}")
            return
        except OSError as error:
            call.give_up("cache", f"its library cannot be read: {error}")
            return
        if path is not None:
            call.offer(path, self.cache.race(self.key))
        elif self.options.tune == "now":
            self._tune(call)
        elif self.options.tune == "background":
            self._tune_later(call)

    def _tune_later(self, call: RegionCall) -> None:
        """Unless the region is gone by then, as with the model that it is of. It owns its supply,
        so that what waits holds neither."""
        ours, its = ref(self), ref(call)

        def work() -> None:
            supply, waiting = ours(), its()
            if supply is not None and waiting is not None:
                supply._tune(waiting)

        self.background.add(work)

    def _tune(self, call: RegionCall) -> None:
        line = ProgressLine(sys.stderr)
        try:
            making = Making(
                graph=self.graph.content,
                key=self.key,
                folder=self.cache.folder,
                background=self.options.tune == "background",
                settings=self.settings,
            )
            if making.background:
                path = made(making)
            else:
                with line.shown():
                    path = made(making, lambda text: line.show(f"{call.__name__}: {text}"))
        except (TunerError, OSError) as error:
            call.give_up("tuning", f"it could not be tuned: {error}")
        except Exception as error:  # a fault of ours must not end the model, nor go unsaid
            call.give_up("tuning", f"it could not be tuned: {type(error).__name__}: {error}")
        else:
            call.offer(path)


def cache_of(options: Options) -> RegionCache:
    """Where the libraries are kept."""
    return RegionCache(folder=options.settings.data_dir / "torch")


def settings_of(options: Options, *, on_gpu: bool) -> Settings:
    """The settings by which a region is tuned: on a GPU for that."""
    settings = options.settings
    return settings.model_copy(update=_ON_GPU) if on_gpu else settings


def key_of(graph: RegionGraph, settings: Settings) -> str:
    """The key of a region's library.

    Raises TunerError where there is no such target.
    """
    return region_key(
        graph.digest,
        parse_target(settings.target, settings.microarchitectures).key,
        settings.threads,
        settings.numerics,
        settings.max_error,
    )
