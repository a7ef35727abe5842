"""The tree of errors in the docstring of errors.py matches the classes."""

import re

import triton_regressors as tr
from triton_regressors import errors


def drawn():
    """Return the errors of the docstring as child → parent."""
    parents, path = {}, []
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ([ │├└─]*)([A-Z]\w+)  ", line)
        if found:
            depth, name = len(found[1]) // 4, found[2]
            path[depth:] = [name]
            parents[name] = path[depth - 1] if depth else ""
    return parents


def defined(root):
    """Return the same of the classes themselves."""
    found = {}
    for cls in root.__subclasses__():
        if cls.__module__.startswith("triton_regressors."):
            found |= {cls.__name__: root.__name__, **defined(cls)}
    return found


def test_the_docstring_draws_the_whole_tree():
    public = [getattr(tr, name) for name in tr.__all__]  # imports every module that has one
    assert drawn() == {"TritonRegressorsError": "", **defined(tr.TritonRegressorsError)}
    assert {cls.__name__ for cls in public if isinstance(cls, type) and issubclass(cls, Exception)} == set(drawn())


def test_the_docstring_says_what_each_is():
    said = dict(re.findall(r"([A-Z]\w+)  +(\S.*)", errors.__doc__))
    assert set(said) == set(drawn())
    assert all(len(words.split()) > 3 for words in said.values())
