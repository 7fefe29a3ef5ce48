"""Takes the pictures of the dashboard that the documentation shows, in docs/images.

Run as `python -m docs.generators.screenshots`. It tunes a few small workloads for real,
into a database of its own, serves that database on loopback, and opens the pages in
Chromium. It needs Chromium and the development tools (Playwright).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "images"
# The first one is the job, and the kernel, whose pages are shown.
WORKLOADS = ("matmul:M=256,N=256,K=256", "softmax:M=512,N=1024")
TRIALS = 32
WIDTH, HEIGHT = 1400, 1000  # at most; a short page ends with its content
MARGIN = 12
LARGEST_BYTES = 200_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TUNER = (sys.executable, "-m", "tuner")


def tune(environment: Mapping[str, str]) -> None:
    for workload in WORKLOADS:
        command = [*TUNER, "tune", workload, "--threads", "1", "--trials", str(TRIALS)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def served(environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a service of the database, for the block."""
    command = [*TUNER, "serve", "--auth", "off", "--port", "0"]
    service = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr is not None
        for line in service.stderr:
            _, listening, url = line.partition("listening on ")
            if listening:
                yield url.strip().rstrip("/")
                break
        else:
            raise SystemExit("the service ended before it listened")
    finally:
        service.terminate()
        service.wait(timeout=60)


def pages(url: str) -> Mapping[str, str]:
    """Addresses of the pages that are shown, by the name of the picture."""

    def listed(path: str) -> list[dict[str, Any]]:
        answer = httpx.get(f"{url}/v1/{path}", verify=False)
        answer.raise_for_status()
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    job = listed("jobs")[-1]["id"]
    kernel = next(item["id"] for item in listed("kernels") if item["job"] == job)
    return {"overview": "/", "job": f"/jobs/{job}", "kernel": f"/kernels/{kernel}"}


def take(page: Page, address: str, path: Path) -> None:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    # Parts of a page are fetched after it.
    while page.evaluate("document.querySelector('.busy') !== null"):
        page.wait_for_timeout(50)
    bottom: float = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
    height = min(HEIGHT, bottom + MARGIN)
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
    size = path.stat().st_size
    if size > LARGEST_BYTES:
        raise SystemExit(f"{path} has {size} bytes, more than {LARGEST_BYTES}")
    print(f"{path.name}: {size} bytes")


def main() -> None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("Chromium is not installed; apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "TUNER_DATA_DIR": folder}
        tune(environment)
        with served(environment) as url, sync_playwright() as playwright:
            # Chromium's own sandbox does not work for root.
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            for name, path in pages(url).items():
                take(page, url + path, IMAGES / f"dashboard-{name}.png")
            chromium.close()


if __name__ == "__main__":
    main()
