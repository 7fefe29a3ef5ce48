"""Cross compilers: which one a target's libraries take, and what is said where it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.targets import host_target
from tuner.runtime.link import link, system_toolchain, toolchain_for
from tuner.runtime.toolchain import LinkError, Toolchain
from tuner.target.detect import parse_target


def stub(path: Path, name: str, triple: str) -> None:
    """A compiler that only says what it is."""
    program = path / name
    program.write_text(
        f'#!/bin/sh\ncase "$1" in -dumpmachine) echo {triple};; *) echo gcc 1;; esac\n'
    )
    program.chmod(0o755)


def test_the_machines_own_architecture_takes_the_systems_compiler() -> None:
    assert toolchain_for(host_target()) is system_toolchain()
    assert system_toolchain().prefix == ""


def test_another_architecture_takes_the_compiler_of_its_triple(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(tmp_path, "mips-linux-gnu-gcc", "mips-linux-gnu")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CC_mips_linux_gnu", raising=False)
    tools = Toolchain.cross("mips-linux-gnu", tmp_path)
    assert tools.command == ("mips-linux-gnu-gcc",)
    assert (tools.machine, tools.prefix) == ("mips", "mips-linux-gnu-")


def test_a_variable_names_another_compiler_with_its_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(tmp_path, "clang", "aarch64-linux-gnu")
    monkeypatch.setenv("CC_aarch64_linux_gnu", f"{tmp_path}/clang --sysroot=/opt/root")
    tools = Toolchain.cross("aarch64-linux-gnu", tmp_path)
    assert tools.command == (f"{tmp_path}/clang", "--sysroot=/opt/root")


def test_a_missing_compiler_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LinkError) as raised:
        Toolchain.cross("aarch64-linux-gnu", tmp_path)
    assert "gcc-aarch64-linux-gnu" in str(raised.value)
    assert "CC_aarch64_linux_gnu" in str(raised.value)


def test_modules_take_clang_and_say_what_it_comes_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC_wasm32", raising=False)
    with pytest.raises(LinkError, match=r"wasm32 \(Debian: clang, lld\) or set CC_wasm32"):
        Toolchain.cross("wasm32", tmp_path, freestanding=True)
    stub(tmp_path, "clang", "wasm32-unknown-unknown")
    monkeypatch.setenv("PATH", "/bin", prepend=":")
    tools = Toolchain.cross("wasm32", tmp_path, freestanding=True)
    assert tools.command == ("clang", "--target=wasm32") and tools.freestanding


def test_levels_of_this_architecture_need_no_cross_compiler() -> None:
    if system_toolchain().machine != "x86_64":
        pytest.skip("this machine is no x86-64")
    assert toolchain_for(parse_target("cpu:x86-64-v3")) is system_toolchain()
    with pytest.raises(LinkError, match="no function"):
        link("empty", [], toolchain=toolchain_for(parse_target("cpu:znver4")))
