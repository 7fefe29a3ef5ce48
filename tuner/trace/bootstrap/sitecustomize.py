"""Starts the recorder, or what calls kernels, in every Python that a program starts.

Python imports the first `sitecustomize` of its path, which this one is; then comes the
environment's own, if there is one. The interpreter need not have this package.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

# What runs in a program whose environment has the folder of its files.
ROLES = {"TUNER_TRACE_FOLDER": "recorder", "TUNER_RUN_FOLDER": "replacer"}
PACKAGE = "_tuner_trace"


def _start(roles: list[str]) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    folder = os.path.dirname(here)
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    for role in roles:
        importlib.import_module(f"{PACKAGE}.{role}.start").start()


def _pass_on() -> None:
    """Imports the `sitecustomize` that this one stands before."""
    this = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        sys.modules["sitecustomize"] = this
        if error.name != "sitecustomize":
            raise


asked = [role for name, role in ROLES.items() if os.environ.get(name)]
if asked:
    try:
        _start(asked)
    except Exception:  # the program must run as it does without
        sys.modules.pop(PACKAGE, None)
    _pass_on()
