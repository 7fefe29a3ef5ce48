"""The shell commands at the top of docs/reference/rest.md, as they stand there, against a
service."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.live_service import options_for, serving

ROOT = Path(__file__).resolve().parents[2]
KEYS, EXPORT, *CURL = re.findall(
    r"^```sh\n(.*?)```", (ROOT / "docs/reference/rest.md").read_text(), re.MULTILINE | re.DOTALL
)[0].splitlines()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_first_request_of_the_docs_makes_one_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tuner.sqlite"
    with serving(options_for(url, tmp_path)) as live:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TUNER_DB": url,
            "XDG_CONFIG_HOME": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path),
        }

        def run(command: str) -> str:
            return subprocess.run(
                ["sh", "-c", command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            ).stdout

        made = run(KEYS.partition("#")[0].replace("tuner", f"{sys.executable} -m tuner", 1))
        (token,) = re.findall(r"tk_[0-9a-f]+_[0-9a-f]+", made)
        export = EXPORT.replace("tk_…", token)
        curl = "\n".join([export, *CURL]).replace("http://127.0.0.1:8077", live.url)
        first, again = json.loads(run(curl)), json.loads(run(curl))
        assert (first["state"], first["trials"]) == ("queued", 128) and again["id"] == first["id"]
