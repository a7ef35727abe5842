"""The Triton server's installation on this machine, and the setup of its Python backend for a given interpreter."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from triton_regressors.clients.errors import ServerError
from triton_regressors.clients.server.numpy1 import install_numpy1
from triton_regressors.extras import INSTALL_SERVER

IMAGE = "nvcr.io/nvidia/tritonserver:26.09-py3"
DIRECTORY_VARIABLE = "TRITONSERVER_DIRECTORY"
_STUB = "triton_python_backend_stub"
_CONTAINER_DIRECTORY = Path("/opt/tritonserver")

# An interpreter's version, libraries and packages. -I leaves out the user's own packages, but models see those.
_QUESTION = """
import importlib.metadata, json, os, site, sys, sysconfig
own = [site.getusersitepackages()] if sys.prefix == sys.base_prefix else []
packages = [path for path in own + site.getsitepackages() if os.path.isdir(path)]
for path in own:
    site.addsitedir(path)
numpy = next((found.version for found in importlib.metadata.distributions(name="numpy")), "")
print(json.dumps([
    sys.version_info[:2], sysconfig.get_config_var("LIBDIR") or "", sys.base_prefix,
    getattr(sys, "_base_executable", None) or sys.executable, packages, numpy,
]))
"""


@dataclass(frozen=True)
class Installation:
    """One Triton server on this machine."""

    executable: Path
    backends: Path  # holds python/
    libraries: Path | None  # goes on LD_LIBRARY_PATH
    stubs: Path | None  # one folder per Python version; None: backends/python holds the only one


@dataclass(frozen=True)
class Interpreter:
    """The interpreter whose packages the Python backend sees."""

    path: Path
    version: tuple[int, int]
    library_directories: tuple[Path, ...]  # where its libpython may be
    home: Path = Path()  # the directory of the interpreter from which a virtual environment was made
    packages: tuple[str, ...] = ()  # its site-packages
    numpy: str = ""  # the version; empty: none


def docker_command(repository: Path) -> str:
    """Return the command that serves `repository` on loopback with the official image, which lacks only torch."""
    return (
        "docker run --rm --shm-size=1g -p 127.0.0.1:8000-8002:8000-8002 "
        f"-v {repository.resolve()}:/models:ro {IMAGE} bash -c "
        "'pip install --break-system-packages torch safetensors && exec tritonserver --model-repository=/models'"
    )


def find_installation(repository: Path) -> Installation:
    """Return the Triton server: in $TRITONSERVER_DIRECTORY, else the nvidia-pytriton wheel, else /opt/tritonserver.

    Args:
        repository: the model repository to be served, for the docker command in the error's advice.

    Raises:
        ServerError: there is none.
    """
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        found = _from_directory(Path(chosen))
        if found is None:
            raise ServerError(
                f"{DIRECTORY_VARIABLE} is {chosen}, which holds no Triton server: "
                "bin/tritonserver and backends/python are expected there."
            )
        return found
    found = _from_wheel() or _from_directory(_CONTAINER_DIRECTORY)
    if found is None:
        raise ServerError(
            f"No Triton server is installed here. Install it with `{INSTALL_SERVER}` (Linux x86-64), or serve with "
            f"Docker: {docker_command(repository)}"
        )
    return found


def _from_directory(directory: Path) -> Installation | None:
    executable, backends = directory / "bin" / "tritonserver", directory / "backends"
    if not executable.is_file() or not (backends / "python").is_dir():
        return None
    libraries = next((path for name in ("libs", "lib") if (path := directory / name).is_dir()), None)
    return Installation(executable, backends, libraries, stubs=None)


def _from_wheel() -> Installation | None:
    spec = importlib.util.find_spec("pytriton")  # finds the package without importing it
    for package in (spec.submodule_search_locations or []) if spec else []:
        server = Path(package) / "tritonserver"
        if (server / "bin" / "tritonserver").is_file():
            return Installation(
                executable=server / "bin" / "tritonserver",
                backends=server / "backends",
                libraries=Path(package).parent / "nvidia_pytriton.libs",
                stubs=server / "python_backend_stubs",
            )
    return None


def inspect_interpreter(path: Path | None) -> Interpreter:
    """Return the Python backend's data on an interpreter; None is the running one.

    Symbolic links are kept, because a virtual environment is recognised by the location of its `python`.
    """
    path = Path(os.path.abspath(sys.executable if path is None else path))
    try:
        answer = subprocess.run(
            [str(path), "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerError(f"{path} is not a Python interpreter that runs: {error}") from None
    version, library_directory, base_prefix, base, packages, numpy = json.loads(answer)
    directories = [Path(library_directory)] if library_directory else []
    directories += [Path(base_prefix) / "lib", Path(base_prefix) / "lib64"]
    return Interpreter(
        path, (version[0], version[1]), tuple(directories), Path(base).parent, tuple(packages), numpy or ""
    )


@dataclass(frozen=True)
class Runtime:
    """An executable to start, the directory of its backends, and the environment to start it in."""

    executable: Path
    backends: Path
    environment: Mapping[str, str]


def prepare(
    installation: Installation, python: Path | None, extra: Mapping[str, str], scratch: Path, strings: bool = False
) -> Runtime:
    """Prepare the backends and environment with which `installation` runs with the packages of `python`.

    Args:
        installation: the Triton server.
        python: the interpreter whose packages the Python backend sees; None: the running one.
        extra: environment variables on top of this process's own.
        scratch: an empty directory of this server's own, which outlives it. It receives little but symbolic links.
        strings: whether models read strings: the wheel's server then gets numpy 1 if the interpreter has numpy 2.

    Raises:
        ServerError: no stub for this Python version, no libpython, or no numpy 1 where one is needed.
    """
    interpreter = inspect_interpreter(python)
    minor = "{}.{}".format(*interpreter.version)
    backends = installation.backends
    if installation.stubs is None:
        _check_only_stub(backends / "python" / _STUB, minor)
    else:
        stub = installation.stubs / minor / _STUB
        if not stub.is_file():
            have = sorted((p.name for p in installation.stubs.iterdir()), key=lambda v: [int(n) for n in v.split(".")])
            raise ServerError(
                f"The Triton server has no Python backend for Python {minor} ({interpreter.path}); "
                f"it has them for {', '.join(have)}: choose such an interpreter."
            )
        backends = scratch / "backends"
        (backends / "python").mkdir(parents=True)
        for source in [*(installation.backends / "python").iterdir(), stub]:
            if source.name != "__pycache__":
                (backends / "python" / source.name).symlink_to(source)

    library_directories = [installation.libraries] if installation.libraries else []
    libpython = _find_libpython(interpreter, library_directories)
    if libpython is not None:
        # The one library alone: the rest of that directory (conda's, for one) must not hide the server's own.
        (scratch / "lib").mkdir()
        (scratch / "lib" / libpython.name).symlink_to(libpython)
        library_directories.append(scratch / "lib")

    packages = list(interpreter.packages)
    if strings and installation.stubs is not None and int(interpreter.numpy.partition(".")[0] or 0) >= 2:
        packages.insert(0, str(install_numpy1(interpreter.path, interpreter.version)))

    environment = {**os.environ, **extra}
    environment.pop("PYTHONHOME", None)
    environment["PATH"] = _prepend([_make_python3(interpreter, packages, scratch)], environment.get("PATH"))
    environment["LD_LIBRARY_PATH"] = _prepend(library_directories, environment.get("LD_LIBRARY_PATH"))
    return Runtime(installation.executable, backends, environment)


def _check_only_stub(stub: Path, minor: str) -> None:
    linked = re.search(rb"libpython(\d+\.\d+)", stub.read_bytes()) if stub.is_file() else None
    if linked is None:
        raise ServerError(f"The Triton server's Python backend is incomplete: {stub} is missing or damaged.")
    if linked[1].decode() != minor:
        raise ServerError(
            f"The Triton server's Python backend is for Python {linked[1].decode()}, the interpreter chosen is "
            f"Python {minor}: choose a Python {linked[1].decode()}."
        )


def _find_libpython(interpreter: Interpreter, libraries: Iterable[Path]) -> Path | None:
    """Return the libpython to link for the stub; None if the loader finds one without our help."""
    major, minor = interpreter.version
    if any(any(directory.glob(f"libpython{major}*.{minor}.so*")) for directory in libraries):
        return None  # the wheel brings some versions along, under a mangled name
    name = f"libpython{major}.{minor}.so.1.0"
    for directory in interpreter.library_directories:
        if (directory / name).is_file():
            return directory / name
    try:
        known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError:
        known = ""
    if f"\t{name} " in known:
        return None
    raise ServerError(
        f"The Triton server's Python backend needs {name}, which neither {interpreter.path} nor the system has: "
        f"install it (Debian, Ubuntu: apt-get install libpython{major}.{minor}), or use an interpreter built with "
        "--enable-shared."
    )


def _make_python3(interpreter: Interpreter, packages: Iterable[str], scratch: Path) -> Path:
    """Return the directory to put first on PATH, so that the stub uses these packages; earlier directories come first.

    The stub looks up python3 on PATH and finds packages as python3 does, but reads no environment variable. The
    directory is therefore in a virtual environment that holds only the paths of the packages, and a setting that
    forbids bytecode beside a model.py: a watcher of the entry's files would see it as a change.
    """
    environment = scratch / "environment"
    own = environment / "lib" / "python{}.{}".format(*interpreter.version) / "site-packages"
    own.mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(f"home = {interpreter.home}\ninclude-system-site-packages = false\n")
    lines = ["import sys; sys.dont_write_bytecode = True"]
    lines += [f"import site; site.addsitedir({path!r})" for path in packages]
    (own / "packages.pth").write_text("".join(f"{line}\n" for line in lines))
    (environment / "bin").mkdir()
    (environment / "bin" / "python3").symlink_to(interpreter.path)
    return environment / "bin"


def _prepend(directories: Iterable[Path], path: str | None) -> str:
    return os.pathsep.join([*map(str, directories), *([path] if path else [])])
