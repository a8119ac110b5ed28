"""Reference pages generated from the code: the command line from its commands, the Python API from public names."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from typing import Any

_PAGE_PER_CLASS = "estimators"  # the package that has a page for each class
_FIRST = ("fit", "predict", "predict_proba", "decision_function", "coefficients", "confidence_intervals")
_FOLDER = "reference/api"


def command_line() -> str:
    """Return the page of the command line: one section per command, with its arguments and options."""
    import typer

    from dplangevin.cli.main import app

    root = typer.main.get_command(app)
    parts = [
        "# Command line",
        f"{root.help}\n\n`dplangevin COMMAND --help` prints the same. Exit codes: 0 done, 2 bad input, 3 a guarantee "
        "was refused, 130 interrupted. This page is generated from the commands.",
    ]
    parts += _commands(root, "dplangevin", 2)
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, prefix: str, level: int) -> list[str]:
    parts = []
    for name in sorted(group.commands):
        command, full_name = group.commands[name], f"{prefix} {name}"
        parts.append(f"{'#' * level} {full_name}\n\n{inspect.cleandoc(command.help or '')}")
        if hasattr(command, "commands"):
            parts += _commands(command, full_name, level + 1)
        else:
            parts.append(_usage(command, full_name))
    return parts


def _usage(command: Any, full_name: str) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    shape = [_placeholder(p) if p.required else f"[{_placeholder(p)}]" for p in arguments] + [
        f"{p.opts[0]} {_placeholder(p)}" for p in options if p.required
    ]
    lines = [f"```text\n{full_name} {' '.join(shape)} [OPTIONS]\n```", ""]
    for parameter in arguments:
        lines.append(f"- `{_placeholder(parameter)}`: {_escape_markdown(parameter.help)}")
    panels: dict[str, list[Any]] = {"": []}
    for parameter in options:
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or "", []).append(parameter)
    for heading, parameters in panels.items():
        lines += ["", f"**{heading}**", ""] if heading else []
        for parameter in parameters:
            flags = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
            lines.append(
                f"- {flags}{_value(parameter)}: {_escape_markdown(parameter.help)}{_default(parameter)}"
            )
    return "\n".join(lines)


def _placeholder(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _value(parameter: Any) -> str:
    return "" if getattr(parameter, "is_flag", False) else f" `{_placeholder(parameter)}`"


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return " **Required.**"
    if value is None or value is False or value == "" or callable(value):
        return ""
    return f" Default: `{value}`."


def _escape_markdown(text: str | None) -> str:
    one_line = " ".join((text or "").split())
    return one_line.replace("<", "&lt;").replace("*", r"\*")


@cache
def public_names() -> dict[str, list[str]]:
    """Return the public names of each package; a name of several packages is documented where it is defined."""
    import dplangevin

    modules = ["dplangevin"] + [
        f"dplangevin.{module.name}"
        for module in pkgutil.iter_modules(dplangevin.__path__)
        if not module.name.startswith("_") and module.name != "cli"
    ]
    offered = {module: _names(importlib.import_module(module)) for module in modules}
    documented_ids: set[int] = set()
    names_by_module = {}
    for module in reversed(modules):  # sub-packages first: the top level documents the rest
        package = importlib.import_module(module)
        own = []
        for name in offered[module]:
            thing = getattr(package, name)
            home = getattr(thing, "__module__", module)
            elsewhere = any(
                other not in (module, "dplangevin") and home.startswith(other) and name in offered[other]
                for other in modules
            )
            has_page = inspect.isclass(thing) or inspect.isroutine(thing)
            if has_page and not elsewhere and id(thing) not in documented_ids:
                own.append(name)
                documented_ids.add(id(thing))
        names_by_module[module] = own
    return {module: names_by_module[module] for module in modules if names_by_module[module]}


def _names(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    ]


def _page(module: str, name: str = "") -> str:
    return f"{_FOLDER}/{module}.md" if not name else f"{_FOLDER}/{module}.{name}.md"


def _members(module: str, name: str) -> list[str]:
    """Return the public members of a class, the most used ones first."""
    cls = getattr(importlib.import_module(module), name)
    members = [
        member
        for member in dir(cls)
        if not member.startswith("_")
        and getattr(getattr(cls, member), "__module__", "").startswith("dplangevin")
    ]
    return sorted(
        members, key=lambda member: (_FIRST.index(member) if member in _FIRST else len(_FIRST), member)
    )


def api_navigation() -> list[Any]:
    """Return the navigation entries of the Python reference."""
    entries: list[Any] = [f"{_FOLDER}/index.md"]
    for module, names in public_names().items():
        if module.endswith(_PAGE_PER_CLASS):
            entries += [{name: _page(module, name)} for name in names]
        else:
            entries.append({module: _page(module)})
    return entries


def api_pages() -> dict[str, str]:
    """Return pages of mkdocstrings directives, one for each package and each estimator, and an index of them."""
    pages, index = {}, ["# Python", "Import public names from `dplangevin` or from one of its packages.", ""]
    for module, names in public_names().items():
        summary = (importlib.import_module(module).__doc__ or "").strip().splitlines()[0]
        index += [f"\n## {module}\n", _escape_markdown(summary), ""]
        if not module.endswith(_PAGE_PER_CLASS):
            body = "\n\n".join(f"::: {module}.{name}" for name in names)
            pages[_page(module)] = f"# {module}\n\n{_escape_markdown(summary)}\n\n{body}\n"
        for name in names:
            if module.endswith(_PAGE_PER_CLASS):
                pages[_page(module, name)] = (
                    f"# {name}\n\n`from dplangevin import {name}`\n\n::: {module}.{name}\n"
                    "    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"
                    f"      members: [{', '.join(_members(module, name))}]\n"
                )
            target = _page(module, name if module.endswith(_PAGE_PER_CLASS) else "").rpartition("/")[2]
            index.append(
                f"- [`{name}`]({target}{'' if module.endswith(_PAGE_PER_CLASS) else f'#{module}.{name}'})"
            )
    pages[f"{_FOLDER}/index.md"] = "\n".join(index) + "\n"
    return pages
