"""Linking: reproducible, closed, quick to repeat, and clear when the compiler is
missing or refuses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.runtime.link import Function, link, link_static
from tuner.runtime.loader import Library, LibraryError
from tuner.runtime.toolchain import LinkError, Toolchain
from tuner.runtime.wrapper import MAX_ARGUMENTS
from tuner.target.architectures.x86_64.cpuid import CPUID
from tuner.target.architectures.x86_64.models import FEATURES
from tuner.workload.expression import Tensor

Make = Callable[..., Function]
# The kernel's own spelling in /proc/cpuinfo, where it differs from LLVM's by more than punctuation.
CPUINFO = {
    "sse3": "pni", "pclmul": "pclmulqdq", "lzcnt": "abm", "bmi": "bmi1", "sha": "sha_ni",
    "prfchw": "3dnowprefetch",
    "sahf": "lahf_lm",
}  # fmt: skip


def test_same_inputs_give_the_same_bytes(
    tmp_path: Path, toolchain: Toolchain, function: Make
) -> None:
    kernels = [function("parallel", threads=2)]
    elsewhere = replace(toolchain, cache=tmp_path / "another cache")
    assert link("kit", kernels, toolchain=toolchain) == link("kit", kernels, toolchain=elsewhere)
    assert link_static("kit", kernels, toolchain=toolchain) == link_static(
        "kit", kernels, toolchain=elsewhere
    )


def test_no_path_of_this_machine_is_inside(toolchain: Toolchain, function: Make) -> None:
    for content in (
        link("kit", [function("double")], toolchain=toolchain),
        link_static("kit", [function("double")], toolchain=toolchain),
    ):
        assert b"/tmp" not in content
        assert os.fsencode(Path.home()) + b"/" not in content


def test_only_the_interface_is_visible_and_only_libc_is_needed(
    tmp_path: Path, toolchain: Toolchain, function: Make
) -> None:
    path = tmp_path / "libkit.so"
    path.write_bytes(link("kit", [function("parallel")], toolchain=toolchain))
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert {line.split()[-1] for line in shown.splitlines()} == {
        "kit_alloc", "kit_free", "kit_last_error", "kit_set_num_threads", "kit_time",
        "kit_workspace_bytes",
        "do_parallel", "tuner_library_json",
    }  # fmt: skip
    dynamic = subprocess.run(
        ["readelf", "-d", path], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    needed = {
        line.split("[")[1].split(".so")[0] for line in dynamic.splitlines() if "(NEEDED)" in line
    }
    assert {name for name in needed if not name.startswith("ld-linux")} <= {
        "libc",
        "libm",
        "libpthread",
    }
    assert "TEXTREL" not in dynamic


def test_two_archives_go_into_one_program(
    tmp_path: Path, toolchain: Toolchain, function: Make
) -> None:
    for name in ("one", "two"):
        kernels = [function("parallel", symbol=f"{name}_f", threads=2)]
        (tmp_path / f"lib{name}.a").write_bytes(link_static(name, kernels, toolchain=toolchain))
    (tmp_path / "program.c").write_text(
        """
        #include <stddef.h>
        void *one_alloc(size_t);
        int one_f(const float *, float *), two_f(const float *, float *), two_set_num_threads(int);
        int main(void) {
          float *x = one_alloc(4096), *y = one_alloc(4096);
          for (int i = 0; i < 1024; ++i) x[i] = 1;
          return two_set_num_threads(1) || one_f(x, y) || two_f(y, x) || x[1023] != 4;
        }
        """
    )
    command = ["cc", "program.c", "libone.a", "libtwo.a", "-lm", "-lpthread", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert subprocess.run([tmp_path / "program"], check=False, timeout=30).returncode == 0


def test_every_feature_a_target_may_name_is_known() -> None:
    assert set(FEATURES.values()) <= set(CPUID)


def test_every_feature_bit_is_where_the_system_says(
    tmp_path: Path, toolchain: Toolchain, function: Make
) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("CPUID is x86's")
    flags = {
        flag.replace("_", "")
        for flag in Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split()
    }
    path = tmp_path / "libkit.so"
    probes = [
        function("empty", isa=(name,), symbol=f"probe_{index}") for index, name in enumerate(CPUID)
    ]
    path.write_bytes(link("kit", probes, toolchain=toolchain))
    library, disagree = Library(path), []
    for index, name in enumerate(CPUID):
        answers = (
            CPUINFO.get(name, name.translate(str.maketrans("", "", "-._"))).replace("_", "")
            in flags
        )
        try:
            library.function(f"probe_{index}")(np.zeros(1024, np.float32))
            has = True
        except LibraryError:
            has = False
        if has != answers:
            disagree.append(name)
    assert disagree == []


def test_unknown_features_names_and_duplicates_are_refused(
    toolchain: Toolchain, function: Make
) -> None:
    if toolchain.machine == "x86_64":
        with pytest.raises(LinkError, match="unknown instruction-set features sse9"):
            link("kit", [function("double", isa=("sse9",))], toolchain=toolchain)
    with pytest.raises(LinkError, match="no C identifier"):
        link("my-lib", [function("double")], toolchain=toolchain)
    with pytest.raises(LinkError, match="do_double twice"):
        link("kit", [function("double"), function("double")], toolchain=toolchain)
    with pytest.raises(LinkError, match="no function"):
        link("kit", [], toolchain=toolchain)


def test_too_many_arguments_are_refused(toolchain: Toolchain, function: Make) -> None:
    tensor = Tensor(name="T", shape=(1,), dtype="float32")
    many = tuple(replace(tensor, name=f"T{index}") for index in range(MAX_ARGUMENTS))
    with pytest.raises(LinkError, match=f"has {MAX_ARGUMENTS + 1} arguments"):
        link("kit", [replace(function("double"), inputs=many)], toolchain=toolchain)


@pytest.mark.parametrize("threads", [0, 257])
def test_thread_counts_beyond_the_pool_are_refused(
    toolchain: Toolchain, function: Make, threads: int
) -> None:
    with pytest.raises(LinkError, match="takes 1 to 256"):
        link("kit", [function("parallel", threads=threads)], toolchain=toolchain)


def test_code_that_needs_what_the_runtime_lacks_does_not_link(
    toolchain: Toolchain, function: Make
) -> None:
    code = toolchain.compile(
        "lost.c",
        'int absent(void);\n__attribute__((visibility("default"))) int entry(void) { return '
        "absent(); }\n",
        {},
    )
    with pytest.raises(LinkError, match="absent"):
        link(
            "kit",
            [replace(function("double"), object_code=code.read_bytes(), tvm_symbol="entry")],
            toolchain=toolchain,
        )
    with pytest.raises(LinkError, match="entry_absent"):
        link("kit", [replace(function("double"), tvm_symbol="entry_absent")], toolchain=toolchain)
    with pytest.raises(LinkError, match="failed with status"):
        link(
            "kit",
            [replace(function("double"), object_code=b"no object at all")],
            toolchain=toolchain,
        )


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler --flag")
    with pytest.raises(LinkError, match="no-such-compiler is not installed"):
        Toolchain.find(cache=tmp_path)


def test_a_cache_that_cannot_be_made_is_named(
    tmp_path: Path, toolchain: Toolchain, function: Make
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LinkError, match="XDG_CACHE_HOME"):
        link(
            "kit",
            [function("double")],
            toolchain=replace(toolchain, cache=tmp_path / "file" / "cache"),
        )


def test_a_damaged_cache_entry_does_not_reach_the_library(
    tmp_path: Path, toolchain: Toolchain, function: Make
) -> None:
    tools = replace(toolchain, cache=tmp_path / "cache")
    whole = link("kit", [function("double")], toolchain=tools)
    for entry in tools.cache.glob("*.o"):
        entry.write_bytes(b"")
    assert link("kit", [function("double")], toolchain=tools) == whole


def test_candidates_of_one_workload_share_all_but_the_link(
    tmp_path: Path, toolchain: Toolchain, function: Make
) -> None:
    tools = replace(toolchain, cache=tmp_path / "cache")
    link("kit", [function("double", symbol="candidate")], toolchain=tools)
    before = sorted(entry.name for entry in tools.cache.iterdir())
    other = replace(
        function("double", symbol="candidate"), object_code=function("double").object_code
    )
    link("kit", [other], toolchain=tools)
    assert sorted(entry.name for entry in tools.cache.iterdir()) == before


def test_the_library_describes_itself(tmp_path: Path, toolchain: Toolchain, function: Make) -> None:
    odd = replace(
        function("double", threads=4, isa=("sse2",)),
        inputs=(Tensor(name='a "??(\\\né 😀\x00%s', shape=(1024,), dtype="float32"),),
    )
    path = tmp_path / "libkit.so"
    path.write_bytes(link("kit", [odd], toolchain=toolchain))
    signature = Library(path).signature("do_double")
    assert signature.inputs[0].name == odd.inputs[0].name
    assert (signature.isa, signature.threads, signature.outputs[0].shape) == (("sse2",), 4, (1024,))
