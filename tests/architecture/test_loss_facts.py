"""What is particular to a loss is stated by the loss: no other package asks for its class."""

from __future__ import annotations

import ast
from pathlib import Path

from architecture._source import SOURCE, modules, tree
from dplangevin.planner import MODELS
from dplangevin.problem import losses

KINDS = {
    ("problem/problem.py", "Loss"): "what a caller states as a loss is checked to be one",
    ("problem/problem.py", "Clipped"): "a clipped loss is proved where the loss inside it is",
    (
        "problem/problem.py",
        "RecordLoss",
    ): "nothing but the clip is believed of a user's loss of whole records",
    ("mechanisms/exact_gradient.py", "RecordLoss"): "sums of whole records are not exact",
    ("data/kernels.py", "RecordLoss"): "records are summed one by one instead of as scores",
    ("mechanisms/exact_minimizer.py", "Softmax"): "the only slope of several scores whose error is proved",
    ("mechanisms/rashomon/mechanism.py", "RecordLoss"): "draws without scores need a public grid",
    ("data/dataset.py", "RecordLoss"): "values of whole records instead of values of scores",
    (
        "mechanisms/mechanism.py",
        "RecordLoss",
    ): "a mechanism refuses losses without scores; a user's code is silenced",
    (
        "mechanisms/exponential/mechanism.py",
        "RecordLoss",
    ): "values of whole records must be proved to be bounded",
    (
        "mechanisms/exponential/sampler_plans.py",
        "RecordLoss",
    ): "seconds of a pass: there are no scores to time",
}
"""Which module asks for which class, and why. `RecordLoss` is open to subclasses of users: an attribute that says what
it is could be overridden, its class cannot."""


def asked_classes(syntax: ast.Module) -> set[str]:
    """The losses that a module compares an object's class with: isinstance, issubclass, or type(...) is."""
    known = {name for name in losses.__all__ if isinstance(getattr(losses, name), type)} - {"ModelDefaults"}
    result: set[str] = set()
    for node in ast.walk(syntax):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            against: list[ast.expr] = node.args[1:]
        elif isinstance(node, ast.Compare) and _of_type(node.left):
            against = node.comparators
        else:
            continue
        names = (each for part in against for each in ast.walk(part))
        result |= {name for each in names if (name := _name(each)) in known}
    return result


def _of_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "type"


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def test_no_package_asks_for_the_class_of_a_loss() -> None:
    where = {
        (path.relative_to(SOURCE).as_posix(), kind)
        for path in modules()
        if Path("problem/losses") not in path.relative_to(SOURCE).parents
        for kind in asked_classes(tree(path))
    }
    assert where == set(KINDS)


def compared_models(syntax: ast.Module) -> set[str]:
    """The texts with which a module compares the model of an estimator or of a request."""
    return {
        text.value
        for node in ast.walk(syntax)
        if isinstance(node, ast.Compare) and _names_a_model(node.left)
        for against in node.comparators
        for text in ast.walk(against)
        if isinstance(text, ast.Constant) and text.value in MODELS
    }


def _names_a_model(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):  # getattr(estimator, "_model", "")
        return any(isinstance(each, ast.Constant) and each.value in ("model", "_model") for each in node.args)
    return _name(node) in ("model", "_model")


def test_no_package_below_the_pages_and_commands_asks_for_the_name_of_a_model() -> None:
    found = {path: compared_models(tree(path)) for path in modules()}
    assert not {
        path
        for path, names in found.items()
        if names and path.relative_to(SOURCE).parts[0] not in ("ui", "cli")
    }


def test_the_search_sees_what_it_looks_for() -> None:
    for text in (
        "type(x)._model == 'ridge'",
        "request.model in ('ridge',)",
        "getattr(x, '_model', '') == 'ridge'",
    ):
        assert compared_models(ast.parse(text)) == {"ridge"}
    for text in ("isinstance(x, Huber | Squared)", "isinstance(x, (problem.Huber,))", "type(x) is not Huber"):
        assert "Huber" in asked_classes(ast.parse(text))
