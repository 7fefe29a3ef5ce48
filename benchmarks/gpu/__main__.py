"""Race kernels on a GPU against cuBLAS, cuDNN and PyTorch.

    python -m benchmarks.gpu -o FOLDER [--only RACE] [--tune TRIALS] [--build-only]

Builds the candidates that FOLDER lacks, then races. Building needs nvcc and no GPU.
Racing needs a GPU and PyTorch, and runs anywhere with `python FOLDER/run.py`, for at most
8 minutes. Where both are, `--tune TRIALS` first tunes the workload of each race with the
product, and the promoted kernel takes part.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.build import STANDALONE, build
from benchmarks.gpu.tune import tune_races
from tuner.errors import TunerError
from tuner.target.cuda import cuda_targets
from tuner.target.detect import parse_target

CANDIDATES = 16  # of each race and architecture


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("gpu-benchmark"), help="the folder to carry"
    )
    parser.add_argument(
        "--arch",
        action="append",
        choices=cuda_targets(),
        help="architectures to build for; default: all",
    )
    parser.add_argument(
        "--candidates",
        type=int,
        help=f"of each race and architecture; default: {CANDIDATES}, none with --tune",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="RACE",
        help="this race; may be given several times",
    )
    parser.add_argument(
        "--tune", type=int, metavar="TRIALS", help="tune each race on this machine's GPU first"
    )
    parser.add_argument("--build-only", action="store_true", help="stop before the race")
    given = parser.parse_args()
    folder: Path = given.output

    def said(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        here = str(parse_target("cuda").tvm["arch"]) if given.tune else ""
        if not (folder / "suite.json").is_file() or given.build_only:
            size = build(
                folder,
                architectures=given.arch or ([here] if here else cuda_targets()),
                candidates=(0 if here else CANDIDATES)
                if given.candidates is None
                else given.candidates,
                cache=Path.home() / ".cache" / "tuner" / "cubins",
                only=given.only,
                said=said,
            )
            print(
                f"{folder}: {size / 2**20:.1f} MiB; on a machine with a GPU: python "
                f"{folder / STANDALONE}"
            )
        if here:
            tune_races(folder, arch=here, trials=given.tune, only=given.only, said=said)
    except TunerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.build_only:
        return 0
    return subprocess.run([sys.executable, str(folder / STANDALONE)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
