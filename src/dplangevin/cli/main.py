"""Entry point of the `dplangevin` command: its subcommands, exit codes, errors and warnings; and `doctor` and `ui`.

Exit codes: 0 done, 2 bad input, 3 a guarantee was refused, 1 anything else. Errors and warnings are one sentence
on standard error and name the flags of the command line instead of the library's parameters.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplangevin import errors
from dplangevin._progress import log_to_stderr
from dplangevin._results import silence_stdout
from dplangevin._version import __version__
from dplangevin.cli import _io
from dplangevin.cli._io import AsJson
from dplangevin.cli.account import account_command, calibrate_command
from dplangevin.cli.count import count_table, summarize_file
from dplangevin.cli.ledger import app as ledger_app
from dplangevin.cli.models import (
    app as schema_app,
    choose_epsilon_command,
    fit_model,
    plan_model,
    predict_table,
)
from dplangevin.cli.papers import app as papers_app, reproduce_figures, run_demo
from dplangevin.cli.rashomon import rashomon_command
from dplangevin.cli.report import (
    app as audit_app,
    export_model,
    keys,
    report_command,
    sign_command,
    verify_command,
)
from dplangevin.cli.sample import sample_coefficients

if TYPE_CHECKING:
    from dplangevin.ledger.ledger import Diagnosis


_REQUIRED_LIBRARIES = ("numpy", "scipy", "scikit-learn", "dp-accounting")
_OPTIONAL_LIBRARIES = (
    "pandas", "pyarrow", "polars", "duckdb", "numba", "dask", "psycopg", "cryptography", "randomgen", "matplotlib",
)  # fmt: skip


def run_doctor(
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            help="URL of a ledger to inspect.",
            metavar="URL",
            envvar="DPLANGEVIN_LEDGER",
            show_envvar=True,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that this installation is fit for releases. Exit code 2 if not; nothing is changed."""
    from dplangevin.ledger.ledger import inspect_ledger

    diagnoses = [
        *_check_versions(),
        _check_arithmetic(),
        _check_kernels(),
        _check_generator(),
        _check_clock(),
    ]
    if ledger is not None:
        diagnoses += inspect_ledger(ledger)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in diagnoses], indent=2))
    else:
        width = max(len(each.subject) for each in diagnoses)
        for each in diagnoses:
            typer.echo(f"{each.subject:<{width}}  {each.status:<7}  {each.message}")
    if any(each.status == "failure" for each in diagnoses):
        raise typer.Exit(2)


def _make_diagnosis(subject: str, status: str, message: str) -> Diagnosis:
    from dplangevin.ledger.ledger import Diagnosis

    return Diagnosis(subject=subject, status=status, message=message)


def _check_versions() -> list[Diagnosis]:
    from dplangevin._version import __version__

    python_version = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    diagnoses = [_make_diagnosis("dplangevin", "ok", f"{__version__} on {python_version}")]
    for names, status_if_missing in ((_REQUIRED_LIBRARIES, "failure"), (_OPTIONAL_LIBRARIES, "ok")):
        versions = {name: _installed_version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        shown = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
        versions_text = shown + (f"; not installed: {', '.join(missing)}" if missing else "")
        subject = "libraries" if names is _REQUIRED_LIBRARIES else "optional libraries"
        diagnoses.append(_make_diagnosis(subject, status_if_missing if missing else "ok", versions_text))
    return diagnoses


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _check_arithmetic() -> Diagnosis:
    """Check that numbers are IEEE doubles, rounded to nearest, with subnormal numbers: the bounds rely on it."""
    import numpy as np

    tiny = np.array([5e-324]) * 1.0
    exact = sys.float_info.mant_dig == 53 and 1.0 + 2.0**-53 == 1.0 and 1.0 + 3 * 2.0**-53 == 1.0 + 2.0**-51
    if not exact or not tiny[0] > 0:
        message = (
            "not IEEE double precision, or some library flushes small numbers to zero: bounds may not hold"
        )
        return _make_diagnosis("arithmetic", "failure", message)
    return _make_diagnosis("arithmetic", "ok", "IEEE double precision, subnormal numbers kept")


def _check_kernels() -> Diagnosis:
    from dplangevin.data.kernels import choose_kernel, thread_count
    from dplangevin.problem import Logistic

    kernel = choose_kernel(Logistic(), 2**40)
    stated = os.environ.get("DPLANGEVIN_KERNEL", "auto")
    return _make_diagnosis(
        "kernels", "ok", f"{kernel.describe()} for large data ({stated}); threads: {thread_count()}"
    )


def _check_generator() -> Diagnosis:
    first, second = os.urandom(32), os.urandom(32)
    if first == second or len(set(first)) < 8:
        return _make_diagnosis(
            "generator", "failure", "the random bytes of the operating system repeat; release nothing"
        )
    from dplangevin._rng import make_generator

    name = type(make_generator()[0].bit_generator).__name__
    return _make_diagnosis(
        "generator",
        "ok",
        f"random bytes of the operating system for secure noise; {name}, seeded by them, otherwise",
    )


def _check_clock() -> Diagnosis:
    now = datetime.now(UTC)
    sane = now.year >= 2025
    return _make_diagnosis("system clock", "ok" if sane else "warning", now.isoformat(timespec="seconds"))


def serve_ui(
    folder: Annotated[
        Path, typer.Option("--folder", help="Folder of the releases; created if absent.", metavar="FOLDER")
    ] = Path("dplangevin-releases"),
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            help="URL of the budget ledger; default: ledger.db in the folder, created with the first budget.",
            metavar="URL",
            envvar="DPLANGEVIN_LEDGER",
        ),
    ] = None,
    start: Annotated[
        Path, typer.Option("--start", help="Folder whose tables are shown first.", metavar="FOLDER")
    ] = Path("."),
    port: Annotated[int, typer.Option("--port", help="Port on loopback; 0 takes a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Open a page in the browser: from a table on disk to a published private model, with nothing to program.

    The page answers on this machine only, to whoever has the address with its token. Nothing is charged before the
    button "Release", and what was charged is delivered even if the page is stopped.
    """
    from dplangevin.ui.server import serve_page

    serve_page(
        folder.expanduser(),
        ledger,
        port,
        start=start.expanduser().absolute(),
        open_browser=browser,
        announce=lambda line: typer.echo(line, err=True),
    )


# Parameters of the library whose flag has another name; all others are named like their flag, with underscores.
_OPTION_NAMES = {
    "random_state": "random_state",
    "public_data": "public",
    "n_models": "n_models",
    "n_features": "n_features",
    "target_bounds": "target_bounds",
}
_FLAG_EXAMPLES = {
    "--target-bounds": "--target-bounds LOW,HIGH",
    "--classes": "--classes A,B,...",
    "--public": "--public FILE",
}
_SUGGESTION_PATTERN = re.compile(r"(?<=; did you mean )\w+|(?<=; the options are )[\w, ]+")
_CLASS_PATTERN = re.compile(r"\bDP[A-Z]\w+ (?=needs|must)")
_FIRST_WORD_PATTERN = re.compile(r"^([a-z]\w*)(?= (?:(?:must|needs|has|is|and|differs)\b|= ))")


def flags_by_parameter(command: Any) -> dict[str, str]:
    """Return the flags of a command by the library's parameter names: --data-norm for data_norm."""
    flag_by_option = {
        part.name: max(part.opts, key=len)
        for part in command.params
        if part.opts and part.opts[0].startswith("-")
    }
    flags = dict(flag_by_option)
    for library_name, option_name in _OPTION_NAMES.items():
        if option_name in flag_by_option:
            flags[library_name] = flag_by_option[option_name]
    return flags


def find_command(group: Any, arguments: Sequence[str]) -> Any:
    """Return the command that these arguments run."""
    command = group
    for word in arguments:
        inner = getattr(command, "commands", None)
        if inner is None:
            break
        if word in inner:
            command = inner[word]
        elif "model" in inner and word.startswith("-"):  # `audit --model ...`
            command = inner["model"]
            break
    return command


def rewrite_with_flags(message: str, flags: Mapping[str, str]) -> str:
    """Return the message with flags in place of the library's parameter names.

    A name with an underscore is replaced everywhere; a single word only before "=" or at the beginning, since it
    may be prose elsewhere.

    Examples
    --------
    >>> flags = {"data_norm": "--data-norm", "epsilon": "--epsilon", "secure": "--secure"}
    >>> rewrite_with_flags("DPRidge needs data_norm, or epsilon with secure=True; state data_norm=1.0.", flags)
    'the model needs --data-norm, or epsilon with --secure; state --data-norm 1.0.'
    >>> rewrite_with_flags("epsilon must be positive, got -1.", flags)
    '--epsilon must be positive, got -1.'
    >>> rewrite_with_flags("alfa is not an option; the options are epsilon, secure.", flags)
    'alfa is not an option; the options are --epsilon, --secure.'
    >>> rewrite_with_flags("epsilon = -1 is not positive.", flags)
    '--epsilon = -1 is not positive.'
    """
    text = _CLASS_PATTERN.sub("the model ", message)
    text = _FIRST_WORD_PATTERN.sub(lambda match: flags.get(match[1], match[1]), text)
    text = _SUGGESTION_PATTERN.sub(
        lambda match: ", ".join(flags.get(name, name) for name in match[0].split(", ")), text
    )
    for name, flag in flags.items():
        name_pattern = r"(?<![\w.\-'\"])" + re.escape(name)
        text = re.sub(name_pattern + r"=True\b", flag, text)
        text = re.sub(name_pattern + r"=(?:\([^)]*\)|\[[^\]]*\])", _FLAG_EXAMPLES.get(flag, flag), text)
        text = re.sub(name_pattern + r"=(?=[\w'\"])", f"{flag} ", text)
        if "_" in name:
            text = re.sub(name_pattern + r"\b(?![=(.])", flag, text)
    return text


@contextmanager
def print_short_warnings(arguments: Sequence[str], flags: Mapping[str, str]) -> Iterator[None]:
    """Print warnings of the library as one line on standard error, and none with -q.

    Warnings of other libraries (NumPy, pandas, ...) are hidden: their text may depend on a single record.
    """
    quiet = any(word in ("-q", "--quiet") for word in arguments)

    def print_warning(message: Any, category: type[Warning], *_: Any) -> None:
        if category is UserWarning and not quiet:
            typer.echo("warning: " + rewrite_with_flags(" ".join(str(message).split()), flags), err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = print_warning  # type: ignore[assignment]
        yield


def command_arguments(arguments: Sequence[str] | None) -> list[str]:
    """Return the given arguments, or those of the process where they are None."""
    return list(sys.argv[1:] if arguments is None else arguments)


_EXIT_BAD_INPUT, _EXIT_REFUSED = 2, 3
_REFUSAL_ERRORS = (
    errors.AssumptionFailed,
    errors.BudgetExceeded,
    errors.CalibrationFailed,
    errors.NotPrivateError,
)

app = typer.Typer(
    name="dplangevin",
    help="Differentially private convex learning: the guarantee of a run, and the noise that a guarantee needs.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("account")(account_command)
app.command("calibrate")(calibrate_command)
app.command("plan")(plan_model)
app.command("fit")(fit_model)
app.command("predict")(predict_table)
app.command("export")(export_model)
app.command("choose-epsilon")(choose_epsilon_command)
app.command("sample")(sample_coefficients)
app.command("count")(count_table)
app.command("summarize")(summarize_file)
app.command("report")(report_command)
app.command("reproduce")(reproduce_figures)
app.command("rashomon")(rashomon_command)
app.command("demo")(run_demo)
app.command("doctor")(run_doctor)
app.command("ui")(serve_ui)
app.command("sign")(sign_command)
app.command("verify")(verify_command)
app.add_typer(papers_app, name="papers")
app.add_typer(schema_app, name="schema")
app.add_typer(audit_app, name="audit")
app.add_typer(ledger_app, name="ledger")
app.add_typer(keys, name="keys")


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"dplangevin {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _show_help(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    code = run_command_line(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # `fit ... | head -1`: the reader has what it wanted, and the files are written
        silence_stdout()
    except OSError as error:
        code = code or _print_error(error, 1)
        silence_stdout()
    sys.exit(code)


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code, never a traceback (unless DPLANGEVIN_TRACEBACK is set)."""
    command_words = command_arguments(arguments)
    _io.COMMAND_WORDS.set(tuple(command_words))
    flags = flags_by_parameter(find_command(typer.main.get_command(app), command_words))
    try:
        with print_short_warnings(command_words, flags), log_to_stderr():
            code = app(args=command_words, prog_name="dplangevin", standalone_mode=False)
    except errors.DplangevinError as error:
        return _print_error(
            rewrite_with_flags(str(error), flags),
            _EXIT_REFUSED if isinstance(error, _REFUSAL_ERRORS) else _EXIT_BAD_INPUT,
        )
    except BrokenPipeError:
        silence_stdout()
        return 0
    except OSError as error:
        return _print_error(error, _EXIT_BAD_INPUT)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # how click ends where nobody reads
            silence_stdout()
            return 0
        return error.code if isinstance(error.code, int) else 1  # a signal, once everything was safe
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's and click's own errors, whichever of them is installed
            message = error.format_message()  # empty where the help was shown
            return _print_error(message, _EXIT_BAD_INPUT) if message else _EXIT_BAD_INPUT
        if os.environ.get("DPLANGEVIN_TRACEBACK"):
            raise
        # its text may quote a record
        return _print_error(
            f"internal error, please report it: {type(error).__name__}; DPLANGEVIN_TRACEBACK=1 shows where, and "
            "perhaps cells of the table",
            1,
        )
    return code if isinstance(code, int) else 0


def _print_error(message: object, code: int) -> int:
    """Print an error in one line, followed by one line for each reason where there are several."""
    first, *reasons = (" ".join(part.split()) for part in str(message).split("\n - "))
    with suppress(OSError):  # nobody reads standard error
        typer.echo("\n - ".join((f"error: {first}", *reasons)), err=True)
    return code


if __name__ == "__main__":
    main()
