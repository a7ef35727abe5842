"""The source text of kernels with all that they call, for a notebook that cannot import the gallery."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CUDA = ROOT / "gallery" / "levels" / "cuda"
TUNED = "tuned"
"""The decorator that chooses blocks: the gallery's own, so a notebook gives the blocks at the launch."""


class Sources:
    """The text of functions and constants of the gallery; each is given once."""

    def __init__(self) -> None:
        self.given: set[tuple[str, str]] = set()

    def text(self, module: str, names: list[str]) -> str:
        """Return the source of a module's functions, after what they use of the gallery and was not given before.

        Raises:
            KeyError: The module has no function or constant of a name.
        """
        found: list[tuple[bool, str]] = []
        for name in names:
            self._collect(module, name, found)
        constants = [text for is_function, text in found if not is_function]
        functions = [text for is_function, text in found if is_function]
        return "\n\n\n".join([*(["\n".join(constants)] if constants else []), *functions])

    def _collect(self, module: str, name: str, found: list[tuple[bool, str]]) -> None:
        definitions, imported = _names_of(module)
        if name in imported:
            self._collect(*imported[name], found)
        elif (module, name) not in self.given:
            self.given.add((module, name))
            node = definitions[name]
            for used in dict.fromkeys(each.id for each in ast.walk(node) if isinstance(each, ast.Name)):
                if used in definitions or (used in imported and _defines(*imported[used])):
                    self._collect(module, used, found)
            found.append((isinstance(node, ast.FunctionDef), _text_of(module, node)))


@cache
def _text(module: str) -> str:
    return (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")


@cache
def _names_of(module: str) -> tuple[dict[str, ast.stmt], dict[str, tuple[str, str]]]:
    """Return a module's functions and constants, and what it imports from others of the gallery."""
    definitions: dict[str, ast.stmt] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.parse(_text(module)).body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [each for each in node.decorator_list if not _is_tuned(each)]
            definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        definitions[each.id] = node
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gallery."):
            imported |= {each.asname or each.name: (node.module or "", each.name) for each in node.names}
    return definitions, imported


def _defines(module: str, name: str) -> bool:
    """Return whether a module has a name of its own; others, as `cuda`, the notebook imports itself."""
    return any(name in names for names in _names_of(module))


def _is_tuned(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == TUNED


def _text_of(module: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return "\n".join(_text(module).splitlines()[first - 1 : node.end_lineno])


def cuda_text(name: str) -> str:
    """Return a CUDA source of the five levels with the gallery's headers in place of their `#include`."""
    given: set[str] = set()

    def inlined(file: str) -> str:
        given.add(file)
        text = (CUDA / file).read_text(encoding="utf-8").replace("#pragma once\n", "")
        return re.sub(r'#include "(.*?)"\n', lambda found: "" if found[1] in given else inlined(found[1]), text)

    return inlined(name)
