"""Reference pages made from the code: the command line from its commands, the Python side from its public names."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from typing import Any

_LONG = "estimators"  # a page for each class
_FIRST = ("fit", "predict", "predict_proba", "decision_function", "coefficients", "confidence_intervals")
_PLACE = "reference/api"


def command_line() -> str:
    """One section a command, with its arguments and options."""
    import typer

    from dplangevin.cli.main import app

    root = typer.main.get_command(app)
    parts = [
        "# Command line",
        f"{root.help}\n\n`dplangevin COMMAND --help` says the same. Exit codes: 0 done, 2 bad input, 3 a promise was "
        "refused, 130 interrupted. This page is made from the commands.",
    ]
    parts += _commands(root, "dplangevin", 2)
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, words: str, level: int) -> list[str]:
    parts = []
    for name in sorted(group.commands):
        command, said = group.commands[name], f"{words} {name}"
        parts.append(f"{'#' * level} {said}\n\n{inspect.cleandoc(command.help or '')}")
        if hasattr(command, "commands"):
            parts += _commands(command, said, level + 1)
        else:
            parts.append(_usage(command, said))
    return parts


def _usage(command: Any, words: str) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    shape = [_placeholder(p) if p.required else f"[{_placeholder(p)}]" for p in arguments] + [
        f"{p.opts[0]} {_placeholder(p)}" for p in options if p.required
    ]
    lines = [f"```text\n{words} {' '.join(shape)} [OPTIONS]\n```", ""]
    for parameter in arguments:
        lines.append(f"- `{_placeholder(parameter)}`: {_escaped(parameter.help)}")
    panels: dict[str, list[Any]] = {"": []}
    for parameter in options:
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or "", []).append(parameter)
    for heading, parameters in panels.items():
        lines += ["", f"**{heading}**", ""] if heading else []
        for parameter in parameters:
            flags = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
            lines.append(f"- {flags}{_value(parameter)}: {_escaped(parameter.help)}{_default(parameter)}")
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


def _escaped(text: str | None) -> str:
    words = " ".join((text or "").split())
    return words.replace("<", "&lt;").replace("*", r"\*")


@cache
def public_names() -> dict[str, list[str]]:
    """The public names of each package; a name that several packages offer is documented by the one it lives in."""
    import dplangevin

    modules = ["dplangevin"] + [
        f"dplangevin.{found.name}"
        for found in pkgutil.iter_modules(dplangevin.__path__)
        if not found.name.startswith("_") and found.name != "cli"
    ]
    offered = {module: _names(importlib.import_module(module)) for module in modules}
    taken: set[int] = set()
    found = {}
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
            documented = inspect.isclass(thing) or inspect.isroutine(thing)
            if documented and not elsewhere and id(thing) not in taken:
                own.append(name)
                taken.add(id(thing))
        found[module] = own
    return {module: found[module] for module in modules if found[module]}


def _names(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    ]


def _page(module: str, name: str = "") -> str:
    return f"{_PLACE}/{module}.md" if not name else f"{_PLACE}/{module}.{name}.md"


def _members(module: str, name: str) -> list[str]:
    """What people look for first, then the rest."""
    made = getattr(importlib.import_module(module), name)
    offered = [
        member
        for member in dir(made)
        if not member.startswith("_")
        and getattr(getattr(made, member), "__module__", "").startswith("dplangevin")
    ]
    return sorted(
        offered, key=lambda member: (_FIRST.index(member) if member in _FIRST else len(_FIRST), member)
    )


def api_navigation() -> list[Any]:
    """What stands under Reference, Python."""
    entries: list[Any] = [f"{_PLACE}/index.md"]
    for module, names in public_names().items():
        if module.endswith(_LONG):
            entries += [{name: _page(module, name)} for name in names]
        else:
            entries.append({module: _page(module)})
    return entries


def api_pages() -> dict[str, str]:
    """Directives of mkdocstrings, a page for each package and each estimator, and a list of all of them."""
    pages, index = {}, ["# Python", "Public names come from `dplangevin` or from one of its packages.", ""]
    for module, names in public_names().items():
        words = (importlib.import_module(module).__doc__ or "").strip().splitlines()[0]
        index += [f"\n## {module}\n", _escaped(words), ""]
        if not module.endswith(_LONG):
            body = "\n\n".join(f"::: {module}.{name}" for name in names)
            pages[_page(module)] = f"# {module}\n\n{_escaped(words)}\n\n{body}\n"
        for name in names:
            if module.endswith(_LONG):
                pages[_page(module, name)] = (
                    f"# {name}\n\n`from dplangevin import {name}`\n\n::: {module}.{name}\n"
                    "    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"
                    f"      members: [{', '.join(_members(module, name))}]\n"
                )
            target = _page(module, name if module.endswith(_LONG) else "").rpartition("/")[2]
            index.append(f"- [`{name}`]({target}{'' if module.endswith(_LONG) else f'#{module}.{name}'})")
    pages[f"{_PLACE}/index.md"] = "\n".join(index) + "\n"
    return pages
