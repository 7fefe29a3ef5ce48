"""Commands `python -m …` in pages name programs that exist and arguments that these take.

Parsers are built again from the calls of `add_argument` in a program's source: to import the
programs would load compiler, cluster and PyTorch.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.pages import PAGES, ROOT, code_of

COMMAND = re.compile(
    r"python -m ((?:benchmarks|docs|examples|tests|tuner)\b[\w.]*)(.*?)(?=python -m|$)"
)
# What follows a command in a page: a comment, a redirection, or words on its other runs.
REST = re.compile(r"\s#|\s>|[;,](?:\s|$)|\s(?:with|then|again)\s")


class Parser(argparse.ArgumentParser):
    """A parser that raises ValueError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def source_of(module: str) -> Path:
    """The file that `python -m` would run. Raises ValueError where there is none."""
    path = ROOT.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__main__.py"):
        if file.is_file():
            return file
    raise ValueError(f"there is no program {module}")


def declared(module: str) -> Iterator[ast.Call]:
    """The calls of `add_argument` in a program and in what it imports from our benchmarks."""
    tree = ast.parse(source_of(module).read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks."):
            names = {alias.name for alias in node.names}
            path = ROOT.joinpath(*str(node.module).split(".")).with_suffix(".py")
            source = path.read_text("utf-8") if path.is_file() else ""
            if "add_argument" in source:
                for function in ast.parse(source).body:
                    if isinstance(function, ast.FunctionDef) and function.name in names:
                        yield from calls_in(function)
    yield from calls_in(tree)


def calls_in(tree: ast.AST) -> Iterator[ast.Call]:
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
    ]
    return iter(sorted(calls, key=lambda call: call.lineno))


def a_number(text: str, kind: type[int] | type[float]) -> object:
    """A number, or a placeholder in capitals, such as SEED."""
    return text if text.isupper() else kind(text)


def keywords(call: ast.Call) -> dict[str, Any]:
    """What decides how an argument is read, where it stands there as a literal.

    No option is required: pages leave out `-o FOLDER`.
    """
    read: dict[str, Any] = {}
    for keyword in call.keywords:
        name = ast.unparse(keyword.value)
        if keyword.arg == "type" and name in ("int", "float"):
            kind = int if name == "int" else float
            read["type"] = partial(a_number, kind=kind)
        elif keyword.arg in ("action", "nargs", "dest", "choices"):
            try:
                read[keyword.arg] = ast.literal_eval(keyword.value)
            except ValueError:
                continue  # choices that are a name
    return read


@cache
def parser(module: str) -> Parser | None:
    """The parser of a program; none where it has none."""
    built = Parser(prog=module, allow_abbrev=False)
    calls = list(declared(module))
    for call in calls:
        built.add_argument(*map(ast.literal_eval, call.args), **keywords(call))
    return built if calls else None


def check(module: str, text: str) -> None:
    """Raises ValueError where a program does not exist or does not take the arguments.

    Words on further runs, as in `-o FILE, with --decode`, may have options that exist.
    """
    options = parser(module)
    first, rest = text, ""
    if end := REST.search(text):
        first, rest = text[: end.start()], text[end.start() :]
    if options is None:
        return
    if words := first.split():
        options.parse_args(words)
    option = re.compile(r"(?<!\S)--[\w-]+")
    existing = set(re.findall(r"--[\w-]+", options.format_help()))
    if unknown := set(option.findall(rest)) - existing:
        raise ValueError(f"{module} has no option {', '.join(sorted(unknown))}")


def quoted(page: Path) -> Iterator[tuple[str, str]]:
    """The programs that a page names, each with the text behind its name."""
    for code in code_of(page):
        for line in code.splitlines():
            yield from COMMAND.findall(line)


def test_commands_in_pages_are_parsed() -> None:
    wrong = []
    for page in PAGES:
        for module, text in quoted(page):
            try:
                check(module, text)
            except ValueError as error:
                wrong.append(f"{page.relative_to(ROOT)}: {module}{text}: {error}")
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "text", "reason"),
    [
        ("benchmarks.kernel", "", "no program benchmarks.kernel"),
        ("benchmarks.kernels", " --trails 64", "unrecognized arguments: --trails"),
        ("benchmarks.kernels", " --trials many", "argument --trials: invalid"),
        ("benchmarks.kernels", " --suit FILE", "unrecognized arguments: --suit"),
        ("benchmarks.oracle", " serch -o FOLDER", "invalid choice: 'serch'"),
        ("benchmarks.oracle", " search -o FOLDER, then race --second 20", "no option --second"),
    ],
)
def test_what_a_program_does_not_take_is_seen(module: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check(module, text)


def test_commands_in_blocks_and_in_prose_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`.venv/bin/python -m benchmarks.kernels -o\nresults; python -m benchmarks.oracle` races\n"
        "```sh\nCI=1 python -m examples.slide.train \\\n  --smoke  # small\n```\n"
    )
    assert sorted(quoted(page)) == [
        ("benchmarks.kernels", " -o results; "),
        ("benchmarks.oracle", ""),
        ("examples.slide.train", " --smoke  # small"),
    ]
