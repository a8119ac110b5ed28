"""What mkdocstrings reads: docstrings as they are at run time, in the form that its parser and Markdown understand.

In the source an entry is `name : what it is`, without types, which stand in the signature; a parser of NumPy's
style would take the words for a type. Maths is plain text, in which a star is no emphasis.
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
    """Rewrites each docstring once, when its object is known."""

    def on_instance(self, *, node: Any, obj: Any, agent: Any, **_: Any) -> None:
        """Called by griffe for every object that it finds."""
        if obj.is_alias or obj.docstring is None:
            return
        text = obj.docstring.value
        if "{shared}" in text or "{parameters}" in text:
            text = inspect.getdoc(_at_run_time(obj.path)) or text
        obj.docstring = Docstring(rewritten(text), parent=obj)


def _at_run_time(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def rewritten(text: str) -> str:
    """Entries with their words below the name; text escaped, code left alone."""
    lines, out, section = _one_entry_a_line(text).splitlines(), [], ""
    for index, line in enumerate(lines):
        following = lines[index + 1] if index + 1 < len(lines) else ""
        if following and set(following) == {"-"}:
            section = line.strip()
        entry = _ENTRY.match(line) if section in _SECTIONS else None
        loose = line and not line.startswith((" ", "-")) and not entry and section != line.strip()
        if section in _SECTIONS and loose:  # a remark below the entries
            section = "Notes"
            out += ["", "Notes", "-----"]
        if entry:
            words = [entry[2]]
            for further in lines[index + 1 :]:
                if not further.startswith("    "):
                    break
                words.append(further.strip())
            said = _escaped(" ".join(words))
            if section == "Parameters" and entry[1].endswith(
                "_"
            ):  # what a fit adds, told beside its parameter
                out[-1] += f" `{entry[1]}`: {said}"
                continue
            for name in entry[1].split(", "):  # each with its own default
                out += [name, "    " + said]
        elif section in _SECTIONS and line.startswith("    "):
            continue  # the words of the entry above
        elif section == "Examples" or line.startswith("    ") or (line and set(line) == {"-"}):
            out.append(line)
        else:
            out.append(_escaped(line))
    return "\n".join(out)


def _one_entry_a_line(text: str) -> str:
    """Short entries share a line in the source: `a : words. b : words.`"""
    return re.sub(r"(?<=\.) (?=[\w, ]+_(?:\(\w*\))? : )", "\n", text)


def _escaped(text: str) -> str:
    parts = _CODE.split(text)
    parts[::2] = [part.replace("<", "&lt;").replace("*", r"\*").replace("[", r"\[") for part in parts[::2]]
    return "".join(parts)
