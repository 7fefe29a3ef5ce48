"""A machine with a GPU that is none, as a pytest plugin: the doubles of NVIDIA's driver,
management library, runtime and programs, put in place.

Nothing of ours is replaced: the product finds libcuda.so.1, libnvidia-ml.so.1, nvcc and
compute-sanitizer as it does on a machine that has them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# With the runtime, which the product never calls, TVM's own library for CUDA loads, as
# it does where there is a GPU.
LIBRARIES = {
    "libcuda.so.1": "driver.cpp",
    "libnvidia-ml.so.1": "management.cpp",
    "libcudart.so.13": "runtime.cpp",
}
PROGRAMS = ("nvcc", "compute-sanitizer")
DEVICE = "double of a GPU"  # as the driver names it

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the doubles of NVIDIA's driver and compiler need g++"
)


def build(folder: Path, capability: int = 90) -> Mapping[str, str]:
    """Builds the doubles in a folder; the environment of processes that are to find them.

    `capability` is that of the device, 80 of sm_80.
    """
    libraries, home = folder / "lib", folder / "cuda"
    libraries.mkdir(parents=True)
    (home / "bin").mkdir(parents=True)
    versions = folder / "versions"
    versions.write_text(
        "libcudart.so.13 { global: cuda*; };"
    )  # the names that TVM's library asks for have it
    for name, source in LIBRARIES.items():
        command = [
            "g++",
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-o",
            str(libraries / name),
        ]
        command += [f"-DCAPABILITY={capability}"] if source == "driver.cpp" else []
        versioned = [f"-Wl,--version-script={versions}"] if source == "runtime.cpp" else []
        subprocess.run([*command, *versioned, str(HERE / source), "-ldl"], check=True, timeout=120)
    (home / "lib64").mkdir()
    nvrtc = [str(home / "lib64" / "libnvrtc.so.13"), str(HERE / "nvrtc.cpp")]
    options = ("-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden")
    subprocess.run(["g++", *options, "-o", *nvrtc], check=True, timeout=120)
    for program in PROGRAMS:
        (home / "bin" / program).symlink_to(HERE / program)
    subprocess.run([home / "bin" / "nvcc", "--precompile"], check=True, timeout=120)
    shutil.copytree(HERE / "include", home / "include", dirs_exist_ok=True)
    return environment_of(folder)


def environment_of(folder: Path) -> Mapping[str, str]:
    """What processes need that are to find the doubles of a folder."""
    libraries = str(folder / "lib")
    path = os.pathsep.join(filter(None, (libraries, os.environ.get("LD_LIBRARY_PATH", ""))))
    return {"LD_LIBRARY_PATH": path, "CUDA_HOME": str(folder / "cuda")}


def built(factory: pytest.TempPathFactory, capability: int) -> Mapping[str, str]:
    """The environment of doubles that all workers of a test run share: the first builds them."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / f"device-{capability}"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = folder / "whole"
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that was ended
            build(folder, capability)
            whole.touch()
    return environment_of(folder)


@pytest.fixture(scope="session")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of processes that are to find the doubles, which are built once."""
    return built(tmp_path_factory, 90)


@pytest.fixture
def gpu_double(doubles: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets processes that the test starts find the doubles."""
    for name, value in doubles.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def doubles_of_sm_80(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The same, of an older device."""
    return built(tmp_path_factory, 80)


@pytest.fixture
def sm_80_double(doubles_of_sm_80: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets processes that the test starts find these."""
    for name, value in doubles_of_sm_80.items():
        monkeypatch.setenv(name, value)
