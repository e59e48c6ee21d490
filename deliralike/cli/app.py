"""The application: its subcommands, its common options, and how errors reach the user."""

import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import deliralike
from deliralike.cli import (
    backends,
    compare,
    conformance,
    convert,
    launch,
    port,
    predict,
    runs,
    settings,
    train,
    weights,
    zoo,
)
from deliralike.errors import DeliralikeError
from deliralike.terminal import PlainFormatter, plain_warnings, say_error

FAILED, BAD_INPUT = 1, 2
INTERRUPTED = 130


class Command(TyperCommand):
    """A subcommand whose help shows no type at options that take no value."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options, with that of the help."""
        return [_without_type(parameter) for parameter in super().get_params(ctx)]


class Commands(TyperGroup):
    """Subcommands whose expected errors become one message on standard error and exit code 2."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options, as a `Command` does."""
        return [_without_type(parameter) for parameter in super().get_params(ctx)]

    def main(
        self, args: Sequence[str] | None = None, *rest: Any, **options: Any
    ) -> Any:
        """Run with `args`; ``--debug`` may stand anywhere."""
        # It prints records where nobody has set up logging.
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(PlainFormatter())
        if isinstance(sys.stdout, TextIOWrapper):
            # What an encoding lacks is written by its number, as on standard error.
            sys.stdout.reconfigure(errors="backslashreplace")
        words = list(sys.argv[1:] if args is None else args)
        others = [word for word in words if word != "--debug"]
        if len(others) < len(words):
            others.insert(0, "--debug")
        return super().main(others, *rest, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; an expected error ends the program with a message.

        Files of users may import Chainer, which needs the bridge to current libraries.
        """
        from deliralike.backends import chainer_bridge
        from deliralike.backends.processes.environment import repeat_at_the_end

        chainer_bridge.install()
        try:
            with plain_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            say_error("deliralike: stopped")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise  # whoever reads our output has seen enough; typer ends quietly
        except (DeliralikeError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            notes = getattr(error, "__notes__", [])
            text = "\n".join([f"deliralike: {type(error).__name__}: {error}", *notes])
            say_error(text)
            repeat_at_the_end(text)
            raise typer.Exit(BAD_INPUT) from None
        except Exception as error:
            if ctx.params.get("debug") or not _shows_user_lines(error):
                raise
            raise typer.Exit(FAILED) from None


def _shows_user_lines(error: Exception) -> bool:
    """Print the lines of the user's code that an error passed, and return whether there are any."""
    from deliralike.training.user_lines import fold

    if not fold(error, has_caller=False):
        return False
    say_error("".join(traceback.format_exception(error)).rstrip())
    return True


def _without_type(parameter: Any) -> Any:
    """Return an option after its type is hidden, if it takes no value."""
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    return parameter


def _help(function: Callable[..., Any]) -> str:
    """Return the docstring of a subcommand, each of its paragraphs as one line."""
    paragraphs = inspect.getdoc(function).split("\n\n")  # type: ignore[union-attr]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"deliralike {deliralike.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and stop.",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Write a network once; train it on PyTorch, Chainer or JAX; prove that it is the same."""


for _module in (
    backends,
    zoo,
    settings,
    train,
    launch,
    runs,
    predict,
    convert,
    port,
    compare,
    conformance,
):
    _context = getattr(_module, "CONTEXT", None)
    app.command(
        _module.__name__.rpartition(".")[2],
        cls=Command,
        context_settings=_context,
        help=_help(_module.command),
    )(_module.command)
app.add_typer(weights.app, name="weights", cls=Commands)


def main() -> None:
    """Run the command line and exit; compiled programs are kept for later calls."""
    from deliralike.backends import cache_programs_by_default

    cache_programs_by_default()
    app(prog_name="deliralike")
