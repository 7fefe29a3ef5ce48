"""Measures the configs of a file, a JSON object a line, on a tuner service.

    python -m examples.external.from_file URL SPEC FILE       a new job
    python -m examples.external.from_file URL SPEC FILE JOB   goes on with one that was stopped

The key is read from TUNER_TOKEN.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.external.session import connected, new_job, report, search


def show(config: Mapping[str, Any], median_s: float | None) -> None:
    print(f"{'failed' if median_s is None else median_s} {config['sketch']}", flush=True)


def main() -> None:
    url, spec, file, *earlier = sys.argv[1:]
    configs = [json.loads(line) for line in Path(file).read_text().splitlines() if line.strip()]
    with connected(url) as client:
        job = earlier[0] if earlier else new_job(client, spec, len(configs))
        print(f"job {job}", flush=True)
        left = iter(configs[client.proposals(job).total :])
        search(client, job, left, len(configs), show)
        report(client, job)


if __name__ == "__main__":
    main()
