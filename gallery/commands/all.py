"""The command `all`."""

from __future__ import annotations


def command() -> None:
    """Run every exhibit and, on a GPU, compare the levels and draw the curves.

    Examples:
        python -m gallery all
    """
    import importlib
    import pkgutil

    from gallery import commands
    from gallery.catalogue import exhibits, kernel_device

    device = kernel_device()  # before the language is imported, as in `run`
    from gallery.show import run

    for exhibit in exhibits().values():
        run(exhibit)
    if device.type == "cuda":
        there = {module.name for module in pkgutil.iter_modules(commands.__path__)}
        for name in ("levels", "bench"):
            if name in there:
                importlib.import_module(f"gallery.commands.{name}").command()
