"""numpy 1 for the Triton server of the nvidia-pytriton wheel, which cannot read strings with any other version.

If the interpreter has numpy 2, numpy 1 is put once into a directory of the user's cache that only the server's models
see, before the interpreter's own packages. The interpreter's own imports do not change.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from triton_regressors.clients.errors import ServerError

REQUIREMENT = "numpy==1.26.4"
NEWEST_PYTHON = (3, 12)  # the last for which numpy 1 has wheels
_INSTALL_S = 300


def numpy1_directory(version: tuple[int, int]) -> Path:
    """Return where numpy 1 for this version of Python is kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "triton-regressors" / f"{REQUIREMENT.replace('==', '-')}-cp{version[0]}{version[1]}"


def install_numpy1(python: Path, version: tuple[int, int]) -> Path:
    """Return the directory that holds numpy 1, which the first call has pip fetch.

    Args:
        python: the interpreter whose pip fetches it.
        version: the Python that is to import it.

    Raises:
        ServerError: numpy 1 has no wheel for this Python, or could not be fetched; with the command that does it.
    """
    why = "An entry reads strings, for which the nvidia-pytriton wheel's Triton server needs numpy 1"
    if version > NEWEST_PYTHON:
        raise ServerError(
            f"{why}, and numpy 1 has no wheel for Python {version[0]}.{version[1]}: give --python (python=) an "
            "interpreter of Python 3.10 to 3.12 that has torch, triton and safetensors, or serve with Docker, whose "
            "image reads strings without numpy 1."
        )
    directory = numpy1_directory(version)
    if (directory / "numpy" / "__init__.py").is_file():
        return directory
    options = ["--no-deps", "--only-binary=:all:", "--python-version", f"{version[0]}.{version[1]}", REQUIREMENT]
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        # Built beside its final place and then renamed in one step: several servers may start at once.
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".numpy-") as made:
            _pip(python, [*options, "--target", f"{made}/packages"])
            with contextlib.suppress(OSError):  # another process was faster
                Path(made, "packages").rename(directory)
        if not (directory / "numpy" / "__init__.py").is_file():
            shutil.rmtree(directory)
            raise OSError(f"pip left no numpy in {directory}")
    except (OSError, subprocess.SubprocessError) as error:
        command = shlex.join(["pip", "install", *options, "--target", str(directory)])
        raise ServerError(
            f"{why}, and pip could not fetch it ({_last_line(error)}): run `{command}` where there is a network, and "
            f"copy {directory} to this machine."
        ) from None
    return directory


def _pip(python: Path, arguments: list[str]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_S, stdin=subprocess.DEVNULL)


def _last_line(error: Exception) -> str:
    said = str(getattr(error, "stderr", "") or "").strip().splitlines()
    return (said[-1] if said else str(error)).strip().rstrip(".")
