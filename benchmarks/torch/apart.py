"""A case of a table in a process of its own, so that nothing it does ends the table."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.torch.judging import NotRun

TOO_SLOW = "too slow"


def apart(measured: Callable[..., Mapping[str, Any]], *case: Any, seconds: float) -> dict[str, Any]:
    """The line of a case. It has `not_run` with the reason where the case is none for this
    machine or takes longer, which is `TOO_SLOW`, and `raised` where it raises or its process
    dies."""
    context = multiprocessing.get_context("fork")  # what was imported is not imported again
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(there, measured, case))
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            return {"not_run": f"{TOO_SLOW}: it took more than {seconds:g} s"}
        line: dict[str, Any] = here.recv()
        return line
    except EOFError:
        process.join()
        return {"raised": f"its process ended with status {process.exitcode}"}
    finally:
        process.kill()
        process.join()
        here.close()


def _send(pipe: Any, measured: Callable[..., Mapping[str, Any]], case: tuple[Any, ...]) -> None:
    try:
        pipe.send(measured(*case))
    except NotRun as reason:
        pipe.send({"not_run": str(reason)[:200]})
    except Exception as error:  # the table must show it
        pipe.send({"raised": f"{type(error).__name__}: {error}"[:400]})
