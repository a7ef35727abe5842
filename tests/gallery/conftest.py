"""On a GPU kernels take the first of their choices in tests, as in the interpreter."""

import sys

import pytest


@pytest.fixture(autouse=True)
def first_choices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning compiles every choice for every type and size, which takes minutes; tests of it ask for `all_choices`."""
    if "all_choices" not in request.fixturenames:
        for name, module in list(sys.modules.items()):
            if name.startswith("gallery."):
                for kernel in vars(module).values():
                    if hasattr(kernel, "choices"):
                        monkeypatch.setattr(kernel, "configs", kernel.configs[:1])


@pytest.fixture
def all_choices() -> None:
    """Let a GPU tune as outside of tests."""
