"""Imports of a command's dependencies when it runs, because torch and scikit-learn take seconds."""

import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from triton_regressors.errors import TritonRegressorsError

INTERRUPTED = 130


@contextmanager
def loading() -> Iterator[None]:
    """Let Ctrl-C end the process at once: a KeyboardInterrupt within an import may become an ImportError.

    Garbage collection leaves alone what is imported. It would look through torch and scikit-learn again and again, and
    once more as the process ends, which takes up to a quarter of the time that they take to import.
    """
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def import_modules(names: Sequence[str] | None) -> None:
    """Import a user's modules, also from the current directory, which registers their lowerings.

    Raises:
        TritonRegressorsError: a module is missing, or raises an error.
    """
    here = os.getcwd()
    if names and here not in sys.path:
        sys.path.insert(0, here)
    for name in names or ():
        try:
            with loading():
                importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise TritonRegressorsError(f"Cannot import {name}: {_why_not(name, error)}.") from error


def _why_not(name: str, error: BaseException) -> str:
    """Return why a module was not imported, and the place in the module."""
    if name.endswith(".py") or os.sep in name:
        return "--import takes a module's name, such as my_module, and not a path"
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return f"the module {error.name} is neither in {os.getcwd()} nor installed"
    if isinstance(error, SystemExit):
        return "it ends the program when it is imported"
    words = (str(error).splitlines() or [""])[0].rstrip(".")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{type(error).__name__}: {words}".rstrip(": ") + place
