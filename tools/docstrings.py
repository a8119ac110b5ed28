"""Griffe extension: docstrings as they are at run time, in the form that mkdocstrings and Markdown understand.

In the source an entry is `name : description`, without types, which are in the signature; a parser of NumPy's style
would take the description for a type. Formulas are plain text, in which a star is no emphasis.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from griffe import Docstring, Extension

_SECTIONS = ("Parameters", "Attributes", "Other Parameters")
_ENTRY = re.compile(r"([\w, *()]+?) : (.*)")
_CODE = re.compile(r"(``[^`]*``|`[^`]*`)")


class Docstrings(Extension):
    """Rewrites each docstring when griffe has loaded its object."""

    def on_instance(self, *, node: Any, obj: Any, agent: Any, **_: Any) -> None:
        """Rewrite the docstring of an object; griffe calls this for every object."""
        if obj.is_alias or obj.docstring is None:
            return
        text = obj.docstring.value
        if "{shared}" in text or "{parameters}" in text:
            text = inspect.getdoc(_import_object(obj.path)) or text
        obj.docstring = Docstring(rewrite_docstring(text), parent=obj)


def _import_object(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def rewrite_docstring(text: str) -> str:
    """Put the description of an entry below its name, and escape text outside of code."""
    lines, out, section = _split_entries(text).splitlines(), [], ""
    for index, line in enumerate(lines):
        following = lines[index + 1] if index + 1 < len(lines) else ""
        if following and set(following) == {"-"}:
            section = line.strip()
        entry = _ENTRY.match(line) if section in _SECTIONS else None
        is_remark = line and not line.startswith((" ", "-")) and not entry and section != line.strip()
        if section in _SECTIONS and is_remark:  # below the entries
            section = "Notes"
            out += ["", "Notes", "-----"]
        if entry:
            parts = [entry[2]]
            for following_line in lines[index + 1 :]:
                if not following_line.startswith("    "):
                    break
                parts.append(following_line.strip())
            description = _escape_markdown(" ".join(parts))
            if section == "Parameters" and entry[1].endswith(
                "_"
            ):  # a fitted attribute, described with its parameter
                out[-1] += f" `{entry[1]}`: {description}"
                continue
            for name in entry[1].split(", "):  # each with its own default
                out += [name, "    " + description]
        elif section in _SECTIONS and line.startswith("    "):
            continue  # belongs to the entry above
        elif section == "Examples" or line.startswith("    ") or (line and set(line) == {"-"}):
            out.append(line)
        else:
            out.append(_escape_markdown(line))
    return "\n".join(out)


def _split_entries(text: str) -> str:
    """Put each entry on its own line; short ones share a line in the source: `a_ : text. b_ : text.`"""
    return re.sub(r"(?<=\.) (?=[\w, ]+_(?:\(\w*\))? : )", "\n", text)


def _escape_markdown(text: str) -> str:
    parts = _CODE.split(text)
    parts[::2] = [part.replace("<", "&lt;").replace("*", r"\*").replace("[", r"\[") for part in parts[::2]]
    return "".join(parts)
