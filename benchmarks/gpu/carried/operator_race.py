"""The race of one operator: its candidates against the library and torch.compile."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .cases import Case, make
from .kernels import Kernel
from .row import begun, result
from .timing import SCREEN_S, Timer, compiled, copy_bandwidth, raced

FINALISTS = 3


def error_of(torch: Any, case: Case, out: Any) -> float:
    """The largest error over all elements, infinite where one is not a number."""
    off = (out.double() - case.want).abs() / case.magnitude
    return float("inf") if bool(torch.isnan(off).any()) else float(off.max())


def screened(
    torch: Any, driver: Any, folder: Path, race: dict[str, Any], arch: str, case: Case
) -> tuple[list[Any], list[str]]:
    """Check all candidates and time the correct ones.

    Gives (seconds, candidate, call, output, error) of each, the fastest first, and the
    faults of the others.
    """
    unwritten = float("nan") if case.dtype.is_floating_point else -1
    passed, faults = [], []
    for candidate in race["built"][arch]:
        out = torch.full(case.want.shape, unwritten, device="cuda", dtype=case.dtype)
        try:
            call = Kernel(torch, driver, (folder / candidate["file"]).read_bytes()).bind(
                case.inputs, [out]
            )
            call()
            torch.cuda.synchronize()
        except RuntimeError as failure:
            faults.append(f"{candidate['file']}: {str(failure).splitlines()[0]}")
            continue
        error = error_of(torch, case, out)
        if error > race["bound"]:
            faults.append(f"{candidate['file']}: error {error:.3g}, {race['bound']:.3g} is allowed")
            continue
        timer = Timer(torch, call, SCREEN_S)
        seconds = statistics.median(timer.sample() for _ in range(3))
        passed.append((seconds, candidate, call, out, error))
    return sorted(passed, key=lambda entry: entry[0]), faults


def run(
    torch: Any, driver: Any, folder: Path, race: dict[str, Any], arch: str
) -> Iterator[dict[str, Any]]:
    """The race's row against the library, and once more with what torch.compile makes."""
    case = make(torch, race)
    passed, faults = screened(torch, driver, folder, race, arch, case)
    row = begun(race, arch, faults)
    row["screened"] = [
        {"seconds": entry[0], "registers": entry[1]["registers"], "config": entry[1]["config"]}
        for entry in passed
    ]
    if "not_tuned" in race:
        row["not_tuned"] = race["not_tuned"]
    if not passed:
        yield {**row, "verdict": "no right candidate"}
        return
    yield row | against(torch, race, arch, case, passed, case.rivals)
    fast = compiled(torch, case.rivals)
    if fast:
        yield row | against(torch, race, arch, case, passed, {**case.rivals, **fast})


def against(
    torch: Any,
    race: dict[str, Any],
    arch: str,
    case: Case,
    passed: list[Any],
    rivals: dict[str, Callable[[], Any]],
) -> dict[str, Any]:
    """What a race of the best candidates against these rivals adds to its row."""
    places = [
        place for place, entry in enumerate(passed) if place < FINALISTS or "tuned" in entry[1]
    ]
    finalists = {f"kernel {place}": passed[place][2] for place in places}
    times = raced(torch, {**finalists, **rivals})
    best = min(finalists, key=lambda name: times[name])
    chosen = passed[int(best.split()[1])]
    error = error_of(torch, case, chosen[3])
    if error > race["bound"]:
        return {"verdict": f"the fastest is wrong after timing: error {error:.3g}"}
    row = result(race, arch, times[best], {name: times[name] for name in rivals}, error)
    row["config"] = chosen[1]["config"]
    for place in places:
        if "tuned" in passed[place][1]:
            row["tuned"] = {
                **passed[place][1]["tuned"],
                "kernel_s": times[f"kernel {place}"],
                "config": passed[place][1]["config"],
            }
    if race["copy_fraction"]:
        bandwidth = copy_bandwidth(torch, race["bytes"])
        row["of_copy"] = race["bytes"] / times[best] / bandwidth
        if row["of_copy"] < race["copy_fraction"]:
            row["verdict"] = "missed"
    return row
