"""The `tuner` program: its table of commands, its global flags, and its exit codes."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tuner.cli.advise import advise
from tuner.cli.agent import agent
from tuner.cli.bench import bench
from tuner.cli.ci import ci
from tuner.cli.combine import combine
from tuner.cli.config import config
from tuner.cli.database import database
from tuner.cli.doctor import doctor
from tuner.cli.estimate import estimate
from tuner.cli.exits import Exit, exit_code
from tuner.cli.export import export
from tuner.cli.fleet import health, workers
from tuner.cli.grad import grad
from tuner.cli.imports import import_
from tuner.cli.invocation import Invocation
from tuner.cli.jobs import cancel, jobs, show, trials
from tuner.cli.judge import judge
from tuner.cli.kernels import best, promote, rollback
from tuner.cli.keys import keys
from tuner.cli.lookup import lookup
from tuner.cli.output import Output
from tuner.cli.quantize import quantize
from tuner.cli.regressions import regressions
from tuner.cli.replay import replay
from tuner.cli.report import report
from tuner.cli.run import run
from tuner.cli.serve import serve
from tuner.cli.space import ops, space
from tuner.cli.targets import targets
from tuner.cli.trace import coverage, trace
from tuner.cli.tune import resume, submit, tune, watch
from tuner.cli.verify import verify
from tuner.cli.worker import worker
from tuner.errors import TunerError
from tuner.version import __version__

COMMANDS = (
    tune, submit, watch, quantize, ops, space, grad, targets, estimate, advise, jobs, show,
    trials, report, resume, cancel, best, lookup, promote, rollback, regressions, export, combine,
    import_, verify, bench, ci, judge, replay, serve, worker, workers, health, doctor,
    trace, coverage, run,
)  # fmt: skip
GROUPS = {"agent": agent, "config": config, "db": database, "keys": keys}

GLOBAL_FLAGS = ("--json", "--quiet", "-q")
GLOBAL_OPTIONS = ("--db", "--server")  # those that take a value
WAY_OUT = "name another path, free space, or ask for the permission, and run the command again"


def _version(asked: bool) -> None:
    if asked:
        print(f"tuner {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    db: Annotated[
        str | None,
        typer.Option(
            "--db", metavar="URL", help="database: sqlite:///PATH or postgresql://USER@HOST/NAME"
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="URL",
            help="a service to send the command to, such as http://127.0.0.1:8077",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON document on standard output")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="no progress and no notes on standard error")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Finds fast schedules for tensor kernels on this machine, checks them, and hands
    them over as libraries.

    --db, --server, --json and --quiet may also follow the command. NO_COLOR is
    respected. Settings: tuner config show --origin.
    """
    context.obj = Invocation(output=Output(as_json=as_json, quiet=quiet), db=db, server=server)


def program() -> typer.Typer:
    """The program with all its commands."""
    app = typer.Typer(
        name="tuner", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )
    app.callback()(_root)
    for command in COMMANDS:
        app.command(command.__name__.rstrip("_"))(command)  # import_, because Python has the word
    for name, group in GROUPS.items():
        app.add_typer(group(), name=name)
    return app


def hoist(arguments: Sequence[str]) -> list[str]:
    """The arguments with the global flags moved to the front.

    So a user may write them after the command too.
    """
    front: list[str] = []
    rest: list[str] = []
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        if argument == "--":
            rest += [argument, *queue]
            break
        if argument in GLOBAL_FLAGS or argument.startswith(
            tuple(f"{name}=" for name in GLOBAL_OPTIONS)
        ):
            front.append(argument)
        elif argument in GLOBAL_OPTIONS:
            front += [argument, *queue[:1]]
            del queue[:1]
        else:
            rest.append(argument)
    return front + rest


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and ends the process with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it
    try:
        program()(hoist(sys.argv[1:] if arguments is None else arguments), prog_name="tuner")
    except TunerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
    except OSError as error:
        print(f"error: {_place(error)}; {WAY_OUT}", file=sys.stderr)
        _drop_output()
        sys.exit(Exit.FAILED)


def _place(error: OSError) -> str:
    """What the operating system refused, and where."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"


def _drop_output() -> None:
    """Lets the process end although its output cannot be written, as on a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = None  # which Python then does not flush
