"""Names and dispatch that the code does without, found in its syntax trees."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN_NAMES = {"one", "found", "at", "wanted", "taken", "told", "known"}
# Folders that still have such names, themselves and not what is below them. A folder
# that has none left must leave this list.
STILL_RENAMED: frozenset[str] = frozenset()
# Files that may compare a target's kind with a text: where kinds are declared and read.
KIND_CHECKS = frozenset(
    {
        "tuner/lowering/cuda/codegen.py",
        "tuner/runtime/cuda_loader.py",
        "tuner/target/architectures/table.py",
        "tuner/target/capability.py",
        "tuner/target/detect.py",
        "tuner/target/processor.py",
        "tuner/target/target.py",
    }
)


# Texts and comments: what is left of a module has only the names that it uses.
QUOTED = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'|#[^\n]*",
    re.DOTALL,
)


@cache
def sources() -> list[tuple[str, str]]:
    """Each module's path from the root and its text."""
    texts = []
    for top in ("tuner", "api", "db", "workers", "benchmarks"):
        # Does not follow links to folders, of which the installed package is made.
        for folder, _, names in os.walk(ROOT / top):
            for path in (Path(folder, name) for name in names if name.endswith(".py")):
                texts.append((path.relative_to(ROOT).as_posix(), path.read_text("utf-8")))
    return texts


def modules(*words: str, quoted: bool = True) -> Iterator[tuple[str, ast.Module]]:
    """The path and the tree of each module that has one of the words, in texts and comments or
    only elsewhere. To parse all takes seconds."""
    has = re.compile(rf"\b(?:{'|'.join(words)})\b")
    for path, text in sources():
        if has.search(text) and (quoted or has.search(QUOTED.sub("", text))):
            yield path, ast.parse(text)


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Variables, parameters and attributes that the module gives a name, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def sketch_checks(tree: ast.Module) -> Iterator[int]:
    """Lines of `isinstance(…, XxxSketch)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            classes = ast.walk(node.args[1])
            if any(isinstance(part, ast.Name) and part.id.endswith("Sketch") for part in classes):
                yield node.lineno


def kind_checks(tree: ast.Module) -> Iterator[int]:
    """Lines that compare something with "cpu" or "cuda"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            operands = (node.left, *node.comparators)
            if any(isinstance(o, ast.Constant) and o.value in ("cpu", "cuda") for o in operands):
                yield node.lineno


def test_names_say_what_they_hold() -> None:
    unclear = {
        f"{path}:{line} {name}": path.rpartition("/")[0]
        for path, tree in modules(*FORBIDDEN_NAMES, quoted=False)
        for line, name in bound_names(tree)
        if name in FORBIDDEN_NAMES
    }
    assert not [place for place, folder in unclear.items() if folder not in STILL_RENAMED]
    assert set(unclear.values()) == STILL_RENAMED, "a folder without such names leaves the list"


def test_sketches_are_told_apart_within_spaces_only() -> None:
    assert not [
        f"{path}:{line}"
        for path, tree in modules(r"\w*Sketch")
        if not path.startswith("tuner/spaces/")
        for line in sketch_checks(tree)
    ]


def test_kinds_of_targets_are_compared_in_few_files() -> None:
    compared = {path for path, tree in modules("cpu", "cuda") if any(kind_checks(tree))}
    assert compared == KIND_CHECKS


@pytest.mark.parametrize(
    "text", ["def f(one): pass", "found = 1", "for at in x: pass", "self.known = 2"]
)
def test_forbidden_names_are_seen(text: str) -> None:
    assert FORBIDDEN_NAMES & {name for _, name in bound_names(ast.parse(text))}


def test_checks_are_seen() -> None:
    text = "a = 'b'  # one\nfound = \"at # known\"\n"
    assert QUOTED.sub("", text).split() == ["a", "=", "found", "="]
    assert list(sketch_checks(ast.parse("isinstance(x, (A, TileSketch))"))) == [1]
    assert list(kind_checks(ast.parse("x = target.kind == 'cuda'"))) == [1]


def test_tests_share_what_lies_in_support_and_take_their_targets_from_one_place() -> None:
    """Detection has tests of its own, which are the only other ones that call it."""
    detecting = {"support/targets.py", "unit/target/test_detect.py", "unit/target/test_limits.py"}
    seen = set()
    for path in (ROOT / "tests").rglob("*.py"):
        name = path.relative_to(ROOT / "tests").as_posix()
        own = ".".join(path.parent.relative_to(ROOT).parts)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                if module.startswith("tests."):
                    assert ".test_" not in module, name
                    assert module.startswith(("tests.support", "tests.device", own)), name
                if any(alias.name == "detect_cpu" for alias in node.names):
                    seen.add(name)
    assert seen == detecting
