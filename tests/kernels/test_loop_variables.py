"""No variable of a kernel's loop begins as a copy of another that it becomes again inside.

The compiler's front end finds what a loop changes by running its body once with the values from before the loop. A
variable that an `if` inside sets to the value that it began as counts as unchanged, and keeps that value for ever. The
interpreter is Python and does not have that fault.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import triton_regressors.kernels

ROOT = Path(__file__).parents[2]
SOURCES = [*Path(triton_regressors.kernels.__path__[0]).rglob("*.py"), *(ROOT / "gallery").rglob("*.py")]


def copies(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield the names that a statement binds to the values of other names, with these."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            both = isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple)
            pairs = zip(target.elts, statement.value.elts, strict=True) if both else [(target, statement.value)]
            yield from ((to.id, of.id) for to, of in pairs if isinstance(to, ast.Name) and isinstance(of, ast.Name))


def faults(body: Sequence[ast.stmt], before: dict[str, str]) -> Iterator[str]:
    """Yield the variables of loops that begin as copies of what they become again; `before` are copies made earlier."""
    held = dict(before)
    for statement in body:
        if isinstance(statement, ast.For | ast.While):
            inside = {pair for each in ast.walk(statement) if isinstance(each, ast.stmt) for pair in copies(each)}
            yield from (f"{to} = {of}" for to, of in inside if held.get(to, to) == held.get(of, of))
        for branch in ("body", "orelse"):
            yield from faults(getattr(statement, branch, []), held)
        changed = {
            each.id for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        named = {to: held.get(of, of) for to, of in copies(statement)}
        held = {to: of for to, of in held.items() if to not in changed and of not in changed} | named


def kernels(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef) and any("jit" in ast.unparse(mark) for mark in each.decorator_list):
            yield each


def found_in(source: str) -> list[str]:
    return [f"{each.name}: {fault}" for each in kernels(ast.parse(source)) for fault in faults(each.body, {})]


def test_no_kernel_has_one() -> None:
    assert [(str(path), fault) for path in SOURCES for fault in found_in(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("begin", ["kept, other = total, total", "kept = total\n    other = total"])
def test_one_is_found(begin: str) -> None:
    source = "\n    ".join(
        [
            "@triton.jit\ndef sum_kernel(x, n):",
            "total = tl.zeros([1], tl.float64)",
            begin,
            "for i in range(n):",
            "    if i == 3:",
            "        kept = total",
            "    total += tl.load(x + i)",
        ]
    )
    assert found_in(source) == ["sum_kernel: kept = total"]
    assert found_in(source.replace(begin, "kept, other = tl.zeros([1], tl.float64), total")) == []
