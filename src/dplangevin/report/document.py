"""Document: a report made of blocks (paragraphs, tables, lists, figures), written as HTML, Markdown or JSON.

The templates `report.html` and `report.md` lay it out; what is shown as a number is in the JSON as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from dplangevin import _files
from dplangevin._plain import replace_infinities
from dplangevin._templates import render_template
from dplangevin.errors import InvalidParameter
from dplangevin.report.answer import format_number
from dplangevin.report.plots import Plot, RangePlot
from dplangevin.signing import Signer

SUFFIXES = (".html", ".md", ".json")


@dataclass(frozen=True, kw_only=True)
class ReportNumber:
    """A number, shown with four digits: upper bounds are rounded up, lower bounds (`down`) are rounded down.

    percent : show an upper bound on a probability as a percentage with one decimal.
    """

    value: float
    down: bool = False
    percent: bool = False

    def __str__(self) -> str:
        if self.percent:
            return f"{min(1.0, math.ceil(self.value * 1000 * (1 - 1e-12)) / 1000):.1%}"
        if math.isfinite(self.value) and abs(self.value) < 1e15 and self.value == int(self.value):
            return f"{int(self.value):,}"
        text = format_number(self.value, down=self.down)
        digits, mark, power = text.partition("e")
        return digits.rstrip("0").rstrip(".") + mark + power if mark else text

    def __html__(self) -> str:
        """Return what templates show: the rounded number, which carries its full precision."""
        return f'<data value="{self.value!r}">{self}</data>'


Cell = str | ReportNumber


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A paragraph of text."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True, kw_only=True)
class FactTable:
    """A table of names and their values."""

    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, kw_only=True)
class BulletList:
    """A list of sentences."""

    kind: ClassVar[str] = "list"
    items: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table with a row of headers."""

    kind: ClassVar[str] = "table"
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A finished SVG image whose texts are escaped; `lines` replace it in Markdown."""

    svg: str
    lines: Sequence[str]

    def to_svg(self) -> str:
        """Return the image."""
        return self.svg

    def describe(self) -> Sequence[str]:
        """Return what stands for the image in Markdown."""
        return self.lines


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot with its caption."""

    kind: ClassVar[str] = "figure"
    plot: Plot | RangePlot | Picture
    caption: str


Block = Paragraph | FactTable | BulletList | ReportTable | Figure


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with the blocks below it; `tone` sets what is protected ("good") beside what is not ("warning")."""

    title: str
    blocks: Sequence[Block]
    tone: str = ""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """One of the numbers at the head of a report, with a sentence that says what it means."""

    label: str
    value: Cell
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report: sections for people, and the same facts as plain data for programs."""

    title: str
    sections: Sequence[Section]
    plain: dict[str, Any]
    headlines: Sequence[Headline] = ()
    summary: str = ""
    footer: str = ""

    def to_html(self) -> str:
        """Return one HTML page that loads nothing from the network; the plain data is embedded as JSON."""
        return str(render_template("report.html", document=self, plain=replace_infinities(self.plain)))

    def to_markdown(self) -> str:
        """Return Markdown, with numbers in place of pictures."""
        return str(render_template("report.md", document=self)).strip() + "\n"

    def to_json(self) -> str:
        """Return strict JSON: an infinite number is null beside `<name>_infinite: true`."""
        return json.dumps(replace_infinities(self.plain), indent=1, allow_nan=False, ensure_ascii=True)


def write_document(
    document: Document, path: str | Path, section: Section | None = None, signer: Signer | None = None
) -> Path:
    """Write the document, with an optional last section and signature; .html, .md or .json chooses the format."""
    target = check_report_path(path)
    if section is not None:
        facts = next(block for block in section.blocks if isinstance(block, FactTable))
        document = replace(
            document,
            sections=[*document.sections, section],
            plain={**document.plain, "signed": {name: str(value) for name, value in facts.rows}},
        )
    kind = target.suffix.lower()
    text = {".html": Document.to_html, ".md": Document.to_markdown, ".json": Document.to_json}[kind](document)
    text = text.encode("utf-8", errors="replace").decode("utf-8")
    _files.write_text(target, text if signer is None else signer.sign_text(text))
    return target


def check_report_path(path: str | Path) -> Path:
    """Return the path of a report, or raise before anything is computed if it cannot be written."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidParameter(f"a report must end in .html, .md or .json, got {str(path)!r}.")
    if not target.absolute().parent.is_dir():
        raise InvalidParameter(f"the directory of {str(path)!r} does not exist; create it first.")
    return target
