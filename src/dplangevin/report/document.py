"""Document: a report made of blocks (paragraphs, tables, lists, figures), written as HTML, Markdown or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dplangevin import _files
from dplangevin._plain import escape_markdown
from dplangevin.errors import InvalidParameter
from dplangevin.report import html
from dplangevin.report.answer import format_number
from dplangevin.report.html import RangePlot, render_range_svg
from dplangevin.signing import Signer

SUFFIXES = (".html", ".md", ".json")


@dataclass(frozen=True, kw_only=True)
class ReportNumber:
    """A number, shown with four digits: upper bounds are rounded up, lower bounds (`down`) are rounded down."""

    value: float
    down: bool = False

    def __str__(self) -> str:
        if math.isfinite(self.value) and abs(self.value) < 1e15 and self.value == int(self.value):
            return f"{int(self.value):,}"
        text = format_number(self.value, down=self.down)
        digits, mark, power = text.partition("e")
        return digits.rstrip("0").rstrip(".") + mark + power if mark else text


Cell = str | ReportNumber


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A paragraph of text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class FactTable:
    """A table of names and their values."""

    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, kw_only=True)
class BulletList:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table with a row of headers."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A finished SVG image whose texts are escaped; `lines` replace it in Markdown."""

    svg: str
    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot with its caption."""

    plot: html.Plot | RangePlot | Picture
    caption: str


Block = Paragraph | FactTable | BulletList | ReportTable | Figure


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with the blocks below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report: sections for people, and the same facts as plain data for programs."""

    title: str
    sections: Sequence[Section]
    plain: dict[str, Any]
    footer: str = field(default="")

    def to_html(self) -> str:
        """Return one HTML page that loads nothing from the network; the plain data is embedded as JSON."""
        parts = [
            f"<section><h2>{html.escape_html(section.title)}</h2>"
            f"{''.join(map(_block_to_html, section.blocks))}</section>"
            for section in self.sections
        ]
        data = self.to_json().replace("<", "\\u003c").replace("&", "\\u0026")
        parts.append(f"<footer>{html.escape_html(self.footer)}</footer>")
        parts.append(f'<script type="application/json" id="report">{data}</script>')
        return html.render_page(self.title, "\n".join(parts))

    def to_markdown(self) -> str:
        """Return Markdown, with numbers in place of pictures."""
        parts = [f"# {escape_markdown(self.title)}"]
        for section in self.sections:
            parts += [f"## {escape_markdown(section.title)}", *map(_block_to_markdown, section.blocks)]
        return "\n\n".join([*parts, escape_markdown(self.footer)]) + "\n"

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


def replace_infinities(value: Any) -> Any:
    """Return plain data with infinities as None beside `<name>_infinite: True`, and NaN as None."""
    if isinstance(value, dict):
        clean: dict[str, Any] = {}
        for name, item in value.items():
            clean[str(name)] = replace_infinities(item)
            if isinstance(item, float) and math.isinf(item):
                clean[f"{name}_infinite"] = True
        return clean
    if isinstance(value, (list, tuple)):
        return [replace_infinities(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _block_to_html(block: Block) -> str:
    if isinstance(block, Paragraph):
        return f"<p>{html.escape_html(block.text)}</p>"
    if isinstance(block, FactTable):
        return html.render_table(
            (), [(html.escape_html(name), _cell_to_html(value)) for name, value in block.rows]
        )
    if isinstance(block, BulletList):
        return html.render_list(map(html.escape_html, block.items))
    if isinstance(block, ReportTable):
        return html.render_table(block.headers, [[_cell_to_html(cell) for cell in row] for row in block.rows])
    if isinstance(block.plot, Picture):
        svg = block.plot.svg
    else:
        svg = (
            render_range_svg(block.plot) if isinstance(block.plot, RangePlot) else html.render_svg(block.plot)
        )
    return f"<figure>{svg}<figcaption>{html.escape_html(block.caption)}</figcaption></figure>"


def _cell_to_html(cell: Cell) -> str:
    return (
        html.render_number(cell.value, str(cell))
        if isinstance(cell, ReportNumber)
        else html.escape_html(cell)
    )


def _block_to_markdown(block: Block) -> str:
    if isinstance(block, Paragraph):
        return escape_markdown(block.text)
    if isinstance(block, BulletList):
        return "\n".join(f"- {escape_markdown(item)}" for item in block.items)
    if isinstance(block, FactTable):
        return _table_to_markdown(("", ""), block.rows)
    if isinstance(block, ReportTable):
        return _table_to_markdown(block.headers, block.rows)
    if isinstance(block.plot, Picture):
        return "\n".join(
            [
                f"**{escape_markdown(block.caption)}**",
                "",
                *(f"- {escape_markdown(x)}" for x in block.plot.lines),
            ]
        )
    if isinstance(block.plot, RangePlot):
        cells = [
            (row.name, f"{row.low:.4g}", f"{row.middle:.4g}", f"{row.high:.4g}") for row in block.plot.rows
        ]
        return "\n\n".join(
            [_table_to_markdown(("", "lowest", "released", "highest"), cells), escape_markdown(block.caption)]
        )
    return "\n\n".join(
        [_plot_to_markdown(line) for line in block.plot.lines] + [escape_markdown(block.caption)]
    )


def _plot_to_markdown(line: html.Line) -> str:
    stride = max(1, math.ceil(len(line.points) / 10))
    points = ", ".join(f"({x:.4g}, {y:.4g})" for x, y in line.points[::stride])
    return f"{escape_markdown(line.label)}: {points}"


def _table_to_markdown(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(escape_markdown(str(cell)) for cell in line) + " |" for line in lines)
