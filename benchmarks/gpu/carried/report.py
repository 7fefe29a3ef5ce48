"""The table of a run."""

from __future__ import annotations

import datetime
import subprocess
from typing import Any


def clocks() -> str:
    """What nvidia-smi says now: graphics and memory clocks, power limit, driver."""
    query = "clocks.sm,clocks.max.sm,clocks.mem,power.limit,driver_version"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        said = (
            subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            .stdout.strip()
            .splitlines()
        )
    except OSError:
        return "clocks unknown: no nvidia-smi"
    return f"SM now, SM most, memory, power limit, driver: {said[0] if said else 'unknown'}"


def table(document: dict[str, Any]) -> str:
    lines = [
        f"# {document['gpu']} ({document['arch']}), {document['date']}",
        "",
        f"{document['clocks']}; PyTorch {document['torch']}, CUDA {document['cuda']}; kernels "
        f"by {document['compiler']}",
        "",
        "| race | kernel | fastest library | library / kernel | bar | of copy rate | TFLOP/s | "
        "error | tried (wrong) | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in document["races"]:
        counted = f"{row['candidates']} ({row['wrong']})"
        if "ratio" not in row:
            lines.append(
                f"| {row['spec']} | – | – | – | – | – | – | – | {counted} | {row['verdict']} |"
            )
            continue
        name = min(row["rivals_s"], key=row["rivals_s"].get)
        copied = f"{row['of_copy']:.0%}" if "of_copy" in row else "–"
        library = f"{name}, {row['rivals_s'][name] * 1e6:.1f} µs"
        lines.append(
            f"| {row['spec']} | {row['kernel_s'] * 1e6:.1f} µs | {library} | {row['ratio']:.2f} "
            f"| {row['bar']} | {copied} "
            f"| {row['tflops']:.1f} | {row['error']:.1e} | {counted} | {row['verdict']} |"
        )
    lines += ["", "| race | contender | time |", "|---|---|---|"]
    for row in document["races"]:
        times = {"kernel": row["kernel_s"], **row["rivals_s"]} if "ratio" in row else {}
        if "tuned" in row:
            tuned = row["tuned"]
            busy = "" if tuned.get("busy") is None else f", GPU busy {tuned['busy']:.0%}"
            name = f"tuned, {tuned['trials']} trials in {tuned['seconds']:.0f} s{busy}"
            times[name] = tuned["kernel_s"]
        lines += [
            f"| {row['spec']} | {name} | {times[name] * 1e6:.1f} µs |"
            for name in sorted(times, key=times.__getitem__)
        ]
    lines += [
        f"\n{row['spec']} was not tuned: {row['not_tuned']}"
        for row in document["races"]
        if "not_tuned" in row
    ]
    return "\n".join(lines) + "\n"


def header(torch: Any, suite: dict[str, Any], arch: str) -> dict[str, Any]:
    return {
        "gpu": torch.cuda.get_device_name(), "arch": arch,
        "date": datetime.date.today().isoformat(), "clocks": clocks(),
        "torch": torch.__version__, "cuda": torch.version.cuda,
        "compiler": suite["compiler"].splitlines()[-1], "races": [],
    }  # fmt: skip
