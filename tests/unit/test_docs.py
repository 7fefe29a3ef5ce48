"""Documentation is complete: each command, flag, setting, exit code and error code is
where a reader looks for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

import tuner
from tests.support.pages import PAGES, code_of
from tuner.cli.entry import GLOBAL_FLAGS, GLOBAL_OPTIONS, hoist, program
from tuner.cli.exits import Exit
from tuner.settings import Settings

ROOT = Path(tuner.__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGES = ("tuner", "workers", "db", "api")


def headings(page: str) -> set[str]:
    return {
        line.lstrip("#").strip().strip("`")
        for line in (DOCS / page).read_text().splitlines()
        if line.startswith("#")
    }


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next one of any level."""
    match = re.search(
        rf"^#+ `?{re.escape(heading)}`?\n(.*?)(?=^#|\Z)",
        (DOCS / page).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert match, f"docs/{page} has no heading {heading!r}"
    return match[1]


@cache
def commands() -> dict[str, list[str]]:
    """Each command's full name with its options, as the program itself knows them."""
    root = typer.main.get_command(program())
    options: dict[str, list[str]] = {}
    queue = [("tuner", root)]
    while queue:
        name, command = queue.pop()
        below = getattr(command, "commands", {})
        queue += [(f"{name} {word}", child) for word, child in below.items()]
        if not below:
            options[name] = [
                option
                for parameter in command.params
                for option in parameter.opts
                if option.startswith("--")
            ]
    return options


@pytest.mark.parametrize("name", sorted(commands()))
def test_each_command_has_its_heading_and_each_option_is_described(name: str) -> None:
    text = section("reference/cli.md", name)
    assert [
        option for option in commands()[name] if option != "--help" and option not in text
    ] == []


def test_no_command_is_described_that_does_not_exist() -> None:
    described = {name for name in headings("reference/cli.md") if name.startswith("tuner ")}
    assert described - set(commands()) == set()


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_each_setting_has_its_heading_and_its_built_in_value(name: str) -> None:
    text = " ".join(section("reference/settings.md", name).split())
    assert "Built in:" in text
    default = Settings.model_fields[name].default
    if isinstance(default, (int, float)):
        assert f"Built in: {default:g}." in text


def test_no_setting_is_described_that_does_not_exist() -> None:
    assert headings("reference/settings.md") == {"Settings", *Settings.model_fields}


@pytest.mark.parametrize("code", sorted(Exit))
def test_each_exit_code_is_in_the_table(code: Exit) -> None:
    table = section("reference/cli.md", "Exit codes")
    assert re.search(rf"^\| {int(code)} \|", table, re.MULTILINE)


def error_codes() -> set[str]:
    """The `code` of every class of the product that has one, read from the source:
    importing would need a compiler."""
    codes: set[str] = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        source = path.read_text()
        if "    code = " not in source:  # to parse all takes seconds
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                codes |= {
                    line.value.value
                    for line in node.body
                    if isinstance(line, ast.Assign)
                    and isinstance(line.targets[0], ast.Name)
                    and line.targets[0].id == "code"
                    and isinstance(line.value, ast.Constant)
                    and isinstance(line.value.value, str)
                }
    return codes


def test_each_error_code_has_its_heading() -> None:
    for code in sorted(error_codes()):
        assert section("reference/errors.md", code).strip(), code


def folders_of_the_architecture() -> set[str]:
    """The folders that the page's tree names, by their paths."""
    (tree,) = re.findall(
        r"^```\n(.*?)^```", section("explanation/architecture.md", "Folders"), re.M | re.S
    )
    above: list[str] = []
    listed = set()
    for line in tree.splitlines():
        if match := re.match(r"( *)(\w+/(?:  \w+/)*)(?: {2}|$)", line):
            del above[len(match[1]) // 2 :]
            names = match[2].replace("/", "").split()
            listed |= {"/".join([*above, name]) for name in names}
            above.append(names[-1])
    return listed


def test_the_tree_of_the_architecture_has_all_packages() -> None:
    """Those of `tuner` two levels deep, those of others one; and none that is not there."""
    listed = folders_of_the_architecture()
    packages = {
        path.resolve().parent.relative_to(ROOT.resolve()).as_posix()  # tuner/db is a link
        for pattern in ("*", "*/*", "tuner/*/*")
        for path in ROOT.glob(f"{pattern}/__init__.py")
        if not path.is_relative_to(ROOT / "tests")
    }
    assert {"tuner/spaces/core", "workers/jobs", "api/routes"} <= packages
    assert packages - listed == set()
    assert {name for name in listed if not (ROOT / name).is_dir()} == set()


COMMAND = re.compile(r"(?:^|[\s(;&])(?:\.venv/bin/)?tuner +([^\n#|>&;)`]+)", re.MULTILINE)


def written_commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands in a page's code, with the options of each."""
    names = set(commands())
    for code in code_of(page):
        for command in COMMAND.findall(code):
            words = hoist(command.split(" -- ")[0].split())
            options = [word.strip("[],").split("=")[0] for word in words if "--" in word]
            while words and words[0].startswith("-"):
                del words[: 2 if words[0] in GLOBAL_OPTIONS else 1]
            name = next(
                (name for n in (2, 1) if (name := " ".join(["tuner", *words[:n]])) in names), None
            )
            if name is not None:
                yield name, [option for option in options if option.startswith("--")]


def test_commands_in_pages_have_only_options_that_exist() -> None:
    existing = commands()
    everywhere = {*GLOBAL_FLAGS, *GLOBAL_OPTIONS, "--version", "--help", "--"}
    unknown = [
        f"{page.relative_to(ROOT)}: {name} {option}"
        for page in PAGES
        for name, options in written_commands(page)
        for option in options
        if option not in {*existing[name], *everywhere}
    ]
    assert unknown == []
