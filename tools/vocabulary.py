"""Check names and prose against tools/vocabulary.toml; `make check` runs it.

Retired names must not come back in their scope, no function is named by a bare participle or adjective, and the share
of one-word function names stays below its limit. Run with --report for the figures.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dplangevin"
OTHER_CODE = ("tests", "benchmarks", "examples", "tools")
PROSE_FILES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")


@dataclass(frozen=True)
class Definition:
    """A name that a source file defines: module, class, function, parameter, constant or field."""

    kind: str
    name: str
    place: str


def parse_sources() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def parse_other_code() -> dict[Path, ast.Module]:
    """Tests, benchmarks, examples and tools: their names and prose follow the vocabulary, their locals are free."""
    paths = [path for name in OTHER_CODE for path in sorted((ROOT / name).rglob("*.py"))]
    return {path: ast.parse(path.read_text()) for path in paths}


def describe_path(path: Path) -> str:
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))


def iterate_definitions(path: Path, tree: ast.Module) -> Iterator[Definition]:
    file = describe_path(path)
    yield Definition("module", path.stem if path.stem != "__init__" else path.parent.name, file)
    for node in ast.walk(tree):
        place = f"{file}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ClassDef):
            yield Definition("class", node.name, place)
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield Definition("field", statement.target.id, place)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Definition("function", node.name, place)
            arguments = node.args
            for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs:
                yield Definition("parameter", argument.arg, place)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            kind = "constant" if node.id.isupper() else "local"
            yield Definition(kind, node.id, place)


def iterate_prose(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Docstrings, messages and comments of a source file, each with its place; code examples are left out."""
    file = describe_path(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            text = "\n".join(
                line for line in node.value.splitlines() if not re.match(r"\s*(>>>|\.\.\.)", line)
            )
            yield f"{file}:{node.lineno}", text
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield f"{file}:{token.start[0]}", token.string


def iterate_pages() -> Iterator[tuple[str, str]]:
    """Paragraphs of the documentation without code blocks and inline code."""
    pages = [ROOT / name for name in PROSE_FILES] + sorted((ROOT / "docs").rglob("*.md"))
    for page in pages:
        text = re.sub(
            r"```.*?```", lambda match: "\n" * match.group().count("\n"), page.read_text(), flags=re.S
        )
        for number, line in enumerate(text.splitlines(), 1):
            yield f"{page.relative_to(ROOT)}:{number}", re.sub(r"`[^`]*`", "", line)


def find_retired_names(vocabulary: dict[str, Any], definitions: list[Definition]) -> list[str]:
    retired = {(scope, name) for scope, names in vocabulary["retired"].items() for name in names}
    return [
        f"{one.place}: {one.kind} {one.name} is a retired name (tools/vocabulary.toml)"
        for one in definitions
        if (one.kind, one.name) in retired
    ]


def find_retired_words_of_tests(vocabulary: dict[str, Any], definitions: list[Definition]) -> list[str]:
    """Retired words inside the names of tests."""
    retired = set(vocabulary["retired"]["test_word"])
    return [
        f"{one.place}: {one.name} contains a retired word (tools/vocabulary.toml)"
        for one in definitions
        if one.kind == "function" and one.name.startswith("test_") and retired & set(one.name.split("_"))
    ]


def find_retired_prose(vocabulary: dict[str, Any], passages: list[tuple[str, str]]) -> list[str]:
    allowed = vocabulary["prose"].get("allowed", {})
    faults = []
    for phrase in vocabulary["prose"]["retired"]:
        pattern = re.compile(rf"\b{phrase}\b", re.IGNORECASE)
        for place, text in passages:
            if pattern.search(text) and place.split(":")[0] not in allowed.get(phrase, ()):
                faults.append(f"{place}: {pattern.search(text).group()!r} is a retired phrase")  # type: ignore[union-attr]
    return faults


def is_one_word(name: str) -> bool:
    return "_" not in name.strip("_") and not re.fullmatch(r"[a-z]\d*", name.strip("_"))


def own_functions(definitions: list[Definition]) -> list[Definition]:
    """Functions whose names are ours to choose: no dunders, no names that scikit-learn, typer or Python prescribe."""
    return [one for one in definitions if one.kind == "function" and not re.fullmatch(r"__\w+__", one.name)]


def find_bare_participles(vocabulary: dict[str, Any], functions: list[Definition]) -> list[str]:
    accepted = set(vocabulary["participles"]["accepted"])
    irregular = set(vocabulary["participles"]["irregular"])
    faults = []
    for one in functions:
        word = one.name.strip("_")
        participle = word in irregular or re.fullmatch(r"[a-z]+(ed|ing|en)", word)
        if is_one_word(one.name) and participle and word not in accepted:
            faults.append(f"{one.place}: function {one.name} is a bare participle or adjective")
    return faults


def main() -> int:
    vocabulary = tomllib.loads((ROOT / "tools" / "vocabulary.toml").read_text())
    sources = parse_sources()
    definitions = [one for path, tree in sources.items() for one in iterate_definitions(path, tree)]
    passages = [one for path, tree in sources.items() for one in iterate_prose(path, tree)] + list(
        iterate_pages()
    )
    other = parse_other_code()
    passages += [one for path, tree in other.items() for one in iterate_prose(path, tree)]
    other_definitions = [one for path, tree in other.items() for one in iterate_definitions(path, tree)]
    functions = own_functions(definitions)
    one_word = Counter(one.name for one in functions if is_one_word(one.name))
    share = sum(one_word.values()) / len(functions)
    faults = [
        *find_retired_names(vocabulary, definitions),
        *find_retired_names(vocabulary, [one for one in other_definitions if one.kind != "local"]),
        *find_retired_words_of_tests(vocabulary, other_definitions),
        *find_retired_prose(vocabulary, passages),
        *find_bare_participles(vocabulary, functions),
    ]
    if share > vocabulary["one_word_share"]:
        faults.append(
            f"{share:.1%} of the functions have one-word names; at most {vocabulary['one_word_share']:.0%}"
        )
    if "--report" in sys.argv:
        print(f"{len(sources)} files, {len(functions)} functions, {share:.1%} with one-word names")
        print(", ".join(f"{name} {count}" for name, count in one_word.most_common(200)))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
