"""Document: a report as a few kinds of blocks, written as HTML, Markdown or JSON. Nothing here computes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin._plain import markdown_text
from dplangevin.errors import InvalidParameter
from dplangevin.report import html
from dplangevin.report.ranges import RangePlot, range_svg
from dplangevin.report.text import number
from dplangevin.signing import Signer

SUFFIXES = (".html", ".md", ".json")


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number that is also in the JSON; shown with four digits, a promise rounded up, a lower bound down."""

    value: float
    down: bool = False

    def __str__(self) -> str:
        if math.isfinite(self.value) and abs(self.value) < 1e15 and self.value == int(self.value):
            return f"{int(self.value):,}"
        shown = number(self.value, down=self.down)
        digits, mark, power = shown.partition("e")
        return digits.rstrip("0").rstrip(".") + mark + power if mark else shown


Cell = str | Number


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph."""

    words: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Names with values."""

    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, kw_only=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Rows under headers."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """SVG that was drawn elsewhere, from escaped words; `lines` say the same in Markdown."""

    svg: str
    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot with the sentence under it."""

    plot: html.Plot | RangePlot | Picture
    caption: str


Block = Text | Facts | Bullets | ReportTable | Figure


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what stands under it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, kw_only=True)
class Document:
    """What is written: the sections people read, and the same facts as plain data for programs."""

    title: str
    sections: Sequence[Section]
    plain: dict[str, Any]
    footer: str = field(default="")

    def to_html(self) -> str:
        """One page that fetches nothing; the plain data is embedded as JSON."""
        parts = [
            f"<section><h2>{html.escape(section.title)}</h2>{''.join(map(_html, section.blocks))}</section>"
            for section in self.sections
        ]
        data = self.to_json().replace("<", "\\u003c").replace("&", "\\u0026")
        parts.append(f"<footer>{html.escape(self.footer)}</footer>")
        parts.append(f'<script type="application/json" id="report">{data}</script>')
        return html.page(self.title, "\n".join(parts))

    def to_markdown(self) -> str:
        """Markdown, with tables in the place of pictures."""
        parts = [f"# {markdown_text(self.title)}"]
        for section in self.sections:
            parts += [f"## {markdown_text(section.title)}", *map(_markdown, section.blocks)]
        return "\n\n".join([*parts, markdown_text(self.footer)]) + "\n"

    def to_json(self) -> str:
        """Strict JSON: an infinite number is null beside `<name>_infinite: true`."""
        return json.dumps(finite(self.plain), indent=1, allow_nan=False, ensure_ascii=True)


def write_document(
    document: Document, path: str | Path, section: Section | None = None, signer: Signer | None = None
) -> Path:
    """Write the document, perhaps with one more section, and signed; .html, .md or .json chooses the form."""
    target = checked_path(path)
    if section is not None:
        facts = next(block for block in section.blocks if isinstance(block, Facts))
        document = replace(
            document,
            sections=[*document.sections, section],
            plain={**document.plain, "signed": {name: str(words) for name, words in facts.rows}},
        )
    kind = target.suffix.lower()
    text = {".html": Document.to_html, ".md": Document.to_markdown, ".json": Document.to_json}[kind](document)
    text = text.encode("utf-8", errors="replace").decode("utf-8")
    _files.write_text(target, text if signer is None else signer.signed(text))
    return target


def checked_path(path: str | Path) -> Path:
    """Refuse what cannot be written before anything is computed."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidParameter(f"a report must end in .html, .md or .json, got {str(path)!r}.")
    if not target.absolute().parent.is_dir():
        raise InvalidParameter(f"the directory of {str(path)!r} does not exist; create it first.")
    return target


def finite(value: Any) -> Any:
    """Plain data without infinities, NaN as null."""
    if isinstance(value, dict):
        clean: dict[str, Any] = {}
        for name, item in value.items():
            clean[str(name)] = finite(item)
            if isinstance(item, float) and math.isinf(item):
                clean[f"{name}_infinite"] = True
        return clean
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _html(block: Block) -> str:
    if isinstance(block, Text):
        return f"<p>{html.escape(block.words)}</p>"
    if isinstance(block, Facts):
        return html.table((), [(html.escape(name), _cell(value)) for name, value in block.rows])
    if isinstance(block, Bullets):
        return html.bullets(map(html.escape, block.items))
    if isinstance(block, ReportTable):
        return html.table(block.headers, [[_cell(cell) for cell in row] for row in block.rows])
    if isinstance(block.plot, Picture):
        drawn = block.plot.svg
    else:
        drawn = range_svg(block.plot) if isinstance(block.plot, RangePlot) else html.svg(block.plot)
    return f"<figure>{drawn}<figcaption>{html.escape(block.caption)}</figcaption></figure>"


def _cell(cell: Cell) -> str:
    return html.quantity(cell.value, str(cell)) if isinstance(cell, Number) else html.escape(cell)


def _markdown(block: Block) -> str:
    if isinstance(block, Text):
        return markdown_text(block.words)
    if isinstance(block, Bullets):
        return "\n".join(f"- {markdown_text(item)}" for item in block.items)
    if isinstance(block, Facts):
        return _markdown_table(("", ""), block.rows)
    if isinstance(block, ReportTable):
        return _markdown_table(block.headers, block.rows)
    if isinstance(block.plot, Picture):
        return "\n".join(
            [f"**{markdown_text(block.caption)}**", "", *(f"- {markdown_text(x)}" for x in block.plot.lines)]
        )
    if isinstance(block.plot, RangePlot):
        cells = [
            (row.name, f"{row.low:.4g}", f"{row.middle:.4g}", f"{row.high:.4g}") for row in block.plot.rows
        ]
        return "\n\n".join(
            [_markdown_table(("", "lowest", "released", "highest"), cells), markdown_text(block.caption)]
        )
    return "\n\n".join([_markdown_points(line) for line in block.plot.lines] + [markdown_text(block.caption)])


def _markdown_points(line: html.Line) -> str:
    every = max(1, math.ceil(len(line.points) / 10))
    chosen = line.points[::every]
    points = ", ".join(f"({x:.4g}, {y:.4g})" for x, y in chosen)
    return f"{markdown_text(line.label)}: {points}"


def _markdown_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(markdown_text(str(cell)) for cell in line) + " |" for line in lines)
