"""Starts the recorder in every Python that a traced program starts.

Python imports the first `sitecustomize` of its path, which this one is; then comes the
environment's own, if there is one. The interpreter need not have this package.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    folder = os.path.join(os.path.dirname(here), "recorder")
    spec = importlib.util.spec_from_file_location(
        "_tuner_recorder", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        return
    recorder = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = recorder
    spec.loader.exec_module(recorder)
    importlib.import_module("_tuner_recorder.start").start()


def _pass_on() -> None:
    """Imports the `sitecustomize` that this one stands before."""
    this = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        sys.modules["sitecustomize"] = this
        if error.name != "sitecustomize":
            raise


if os.environ.get("TUNER_TRACE_FOLDER"):
    try:
        _start()
    except Exception:  # what is traced must run as it does without a recorder
        sys.modules.pop("_tuner_recorder", None)
    _pass_on()
