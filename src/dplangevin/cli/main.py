"""Entry point of the `dplangevin` command.

Exit codes: 0 done, 2 bad input, 3 a promise was refused, 1 anything else. Errors are one sentence on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from dplangevin import errors
from dplangevin._results import silence_stdout
from dplangevin._version import __version__
from dplangevin.cli import _messages, _outputs
from dplangevin.cli.account import account_command
from dplangevin.cli.audit import app as audit_app
from dplangevin.cli.calibrate import calibrate_command
from dplangevin.cli.choose_epsilon import choose_epsilon
from dplangevin.cli.count import count
from dplangevin.cli.demo import demo
from dplangevin.cli.doctor import doctor
from dplangevin.cli.ledger import app as ledger_app
from dplangevin.cli.models import fit, plan, predict
from dplangevin.cli.rashomon import rashomon
from dplangevin.cli.report import report
from dplangevin.cli.reproduce import reproduce
from dplangevin.cli.sample import sample
from dplangevin.cli.schema import app as schema_app
from dplangevin.cli.signing import keys, sign, verify

_BAD_INPUT, _REFUSED = 2, 3
_REFUSALS = (
    errors.AssumptionFailed,
    errors.BudgetExceeded,
    errors.CalibrationFailed,
    errors.NotPrivateError,
)

app = typer.Typer(
    name="dplangevin",
    help="Differentially private convex learning: what a run promises, and how much noise a promise needs.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("account")(account_command)
app.command("calibrate")(calibrate_command)
app.command("plan")(plan)
app.command("fit")(fit)
app.command("predict")(predict)
app.command("choose-epsilon")(choose_epsilon)
app.command("sample")(sample)
app.command("count")(count)
app.command("report")(report)
app.command("reproduce")(reproduce)
app.command("rashomon")(rashomon)
app.command("demo")(demo)
app.command("doctor")(doctor)
app.command("sign")(sign)
app.command("verify")(verify)
app.add_typer(schema_app, name="schema")
app.add_typer(audit_app, name="audit")
app.add_typer(ledger_app, name="ledger")
app.add_typer(keys, name="keys")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dplangevin {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # `fit ... | head -1`: the reader has what it wanted, and the files are written
        silence_stdout()
    except OSError as error:
        code = code or _say(error, 1)
        silence_stdout()
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code, never a traceback (unless DPLANGEVIN_TRACEBACK is set)."""
    words = _messages.given(arguments)
    _outputs.COMMAND.set(tuple(words))
    flags = _messages.flags_of(_messages.command_of(typer.main.get_command(app), words))
    try:
        with _messages.short_warnings(words, flags):
            code = app(args=words, prog_name="dplangevin", standalone_mode=False)
    except errors.DplangevinError as error:
        return _say(
            _messages.in_flags(str(error), flags), _REFUSED if isinstance(error, _REFUSALS) else _BAD_INPUT
        )
    except BrokenPipeError:
        silence_stdout()
        return 0
    except OSError as error:
        return _say(error, _BAD_INPUT)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # how click ends where nobody reads
            silence_stdout()
            return 0
        return error.code if isinstance(error.code, int) else 1  # a signal, once everything was safe
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's and click's own errors, whichever of them is installed
            said = error.format_message()  # empty where the help was shown
            return _say(said, _BAD_INPUT) if said else _BAD_INPUT
        if os.environ.get("DPLANGEVIN_TRACEBACK"):
            raise
        # its text may quote a record
        return _say(
            f"internal error, please report it: {type(error).__name__}; DPLANGEVIN_TRACEBACK=1 shows where, and "
            "perhaps cells of the table",
            1,
        )
    return code if isinstance(code, int) else 0


def _say(message: object, code: int) -> int:
    """One line, and below it one for each reason where there are several."""
    first, *reasons = (" ".join(part.split()) for part in str(message).split("\n - "))
    with suppress(OSError):  # nobody reads standard error
        typer.echo("\n - ".join((f"error: {first}", *reasons)), err=True)
    return code


if __name__ == "__main__":
    main()
