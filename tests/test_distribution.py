"""Tests of a wheel's and a source distribution's content, and of their use in an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.clients.conftest import CONFIG, MODEL
from tests.servers import triton_server
from triton_regressors.extras import EXTRAS, INSTALL_SERVER
from triton_regressors.version import __version__

ROOT = Path(__file__).parents[1]
NAME = f"triton_regressors-{__version__}"
IMPORTED_AS = {"mlflow-skinny": "mlflow", "pyyaml": "yaml", "scikit-learn": "sklearn"}


def run(*command: object, cwd: Path) -> str:
    """Return what a command prints; the environment names no package of ours to it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the source distribution of a copy of this checkout, and the wheel made from that."""
    directory = tmp_path_factory.mktemp("built")
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", "exporter", "kernels", "clients", "tests", "benchmarks", "docs", "docker"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    code = "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"
    run(sys.executable, "-c", code, "sdist", directory, cwd=source)
    with tarfile.open(directory / f"{NAME}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    run(sys.executable, "-c", code, "wheel", directory, cwd=directory / NAME)
    return directory


def of_the_package() -> set[str]:
    """Return the files of the package, as git would add them, by their paths under its name."""
    own = {f"triton_regressors/{path.name}" for path in (ROOT / "src/triton_regressors").glob("*.*") if path.is_file()}
    folders = {name: ROOT / name for name in ("exporter", "kernels", "clients")}
    beside = (ROOT / "src/triton_regressors").iterdir()
    folders |= {path.name: path for path in beside if path.is_dir() and not path.is_symlink()}
    deployed = [*(ROOT / "docker").glob("*.yaml"), *(ROOT / "docker").glob("*.py")]
    deployed += [path for name in ("grafana", "kubernetes") for path in (ROOT / "docker" / name).rglob("*.*")]
    own |= {f"triton_regressors/{path.relative_to(ROOT)}" for path in deployed}
    return own | {
        f"triton_regressors/{name}/{path.relative_to(folder)}"
        for name, folder in folders.items()
        for path in [*folder.rglob("*.py"), *folder.rglob("*.json")]
    }


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = wheel.read(f"{NAME}.dist-info/METADATA").decode()
        licence = wheel.read(f"{NAME}.dist-info/licenses/LICENSE")
    assert held == of_the_package()
    assert "triton_regressors/py.typed" in held
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert licence == (ROOT / "LICENSE").read_bytes()


def test_the_source_distribution_holds_what_the_wheel_is_made_of(built: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        held = {name.removeprefix(f"{NAME}/") for name in archive.getnames() if archive.getmember(name).isfile()}
        assert not any(member.issym() or member.islnk() for member in archive.getmembers())
    package = {name.removeprefix("src/") for name in held if name.startswith("src/triton_regressors/")}
    assert package == of_the_package()
    assert {"pyproject.toml", "README.md", "LICENSE"} < held


def requirements(found: Distribution, extra: str = "", system: str = sys.platform) -> Iterator[Requirement]:
    for text in found.requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra, "sys_platform": system}):
            yield requirement


def closure(wheel: Path, extra: str = "") -> dict[str, Distribution]:
    """Return every distribution that installing the wheel would bring, of those installed here."""
    found: dict[str, Distribution] = {}
    asked = set()
    (dist_info,) = wheel.glob("*.dist-info")
    waiting = list(requirements(Distribution.at(dist_info), extra))
    while waiting:
        requirement = waiting.pop()
        own = re.sub(r"[-_.]+", "-", requirement.name).lower()
        for each in requirement.extras or {""}:
            if (own, each) in asked:
                continue
            asked.add((own, each))
            found[own] = distribution(own)
            waiting += [*requirements(found[own]), *requirements(found[own], each)]
    return found


def install(built: Path, extra: str = "") -> Path:
    """Return an interpreter that has the wheel and what it requires with this extra, as links, and nothing else."""
    environment = built / (extra or "client")
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=built)
    (packages,) = environment.glob("lib/python3*/site-packages")
    wheel = built / f"{NAME}-py3-none-any.whl"
    run(sys.executable, "-m", "pip", f"--python={environment}/bin/python", "install", "--quiet", "--no-index",
        "--no-deps", wheel, cwd=built)  # fmt: skip
    for found in closure(packages, extra).values():
        for part in {Path(str(file)).parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            if not (packages / part).exists():
                (packages / part).symlink_to(found.locate_file(part))
    return environment / "bin" / "python"


@pytest.fixture(scope="module")
def client(built: Path) -> Path:
    """An interpreter that has the wheel without an extra, and nothing else."""
    return install(built)


def test_a_client_needs_neither_torch_nor_scikit_learn(client: Path, tmp_path: Path) -> None:
    """All of its half is imported, and the command line works, where there is neither."""
    code = """
import importlib, pathlib, triton_regressors as tr
for name in ("torch", "triton", "sklearn", "skops", "joblib", "matplotlib", "pyarrow"):
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    raise SystemExit(f"{name} is there")
package = pathlib.Path(tr.__file__).parent
modules = [path for folder in ("clients", "commands") for path in sorted((package / folder).rglob("*.py"))]
assert len(modules) > 50
for path in modules:
    if path.stem not in ("floor_model", "charts", "drawing", "html", "report"):  # the server's, compare's
        importlib.import_module(".".join((tr.__name__, *path.relative_to(package).with_suffix("").parts)))
missing = []
for name in tr.__all__:
    try:
        getattr(tr, name)
    except tr.MissingExtra as error:
        extra = {"write_report": "compare", "score": "score", "Score": "score"}.get(name, "export")
        assert f"pip install 'triton-regressors[{extra}]'" in str(error)
        missing.append(name)
print(tr.__file__)
print(*missing)
"""
    place, missing = run(client, "-c", code, cwd=tmp_path).splitlines()
    assert Path(place).is_relative_to(client.parents[1])
    exports = "answers export export_fleet load_estimator lowers lowers_inverse lowers_transform"
    assert missing == f"Export FleetExport Score {exports} score update_fleet write_report"


def test_the_command_of_a_client(client: Path, tmp_path: Path) -> None:
    command = client.parent / "triton-regressors"
    assert run(command, "--version", cwd=tmp_path).strip() == __version__
    (tmp_path / "rows.parquet").touch()
    says = {
        ("export", "m.skops"): r"\[export\]'` brings them\.",
        (
            "serve",
        ): r"\[serve\]'` brings them, and `pip install --no-deps nvidia-pytriton==[\d.]+` the Triton server itself\.",
        ("compare", "m"): r"\[compare\]'` brings it\.",
    }
    for arguments, end in says.items():
        done = subprocess.run([command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert re.fullmatch(rf"Error: .* needs .*`pip install 'triton-regressors{end}\n", done.stderr)
    np_file = tmp_path / "x.npy"
    run(client, "-c", f"import numpy; numpy.save({str(np_file)!r}, numpy.ones((1, 2)))", cwd=tmp_path)
    done = subprocess.run(
        [command, "predict", "m", np_file, "--url", "127.0.0.1:9"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("Error: Cannot reach the Triton server at 127.0.0.1:9")


def test_a_client_needs_nothing_that_windows_lacks(client: Path, tmp_path: Path) -> None:
    """As far as it can be told on Linux: by its modules, and by what it says there."""
    code = """
import sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
import triton_regressors as tr
from triton_regressors.__main__ import make_app
from triton_regressors.clients import rows
tr.Client, tr.AsyncClient, tr.verify, tr.TritonServer, make_app()
for name in ("compare", "export"):
    try:
        getattr(tr, name)
    except tr.TritonRegressorsError as error:
        print(error)
    sys.platform = "win32"  # no sooner: HTTP's libraries, which compare imports first, would look for what is there
"""
    assert run(client, "-c", code, cwd=tmp_path) == (
        "`compare` needs the file locks of Linux or macOS; on Windows run it in WSL.\n"
        "triton_regressors.export needs the Triton language (the package triton), which runs only on Linux, also in "
        "WSL or in a container. The client, `predict` and `verify` work here.\n"
    )


@pytest.mark.server
def test_a_client_asks_a_server(client: Path, tmp_path: Path) -> None:
    """From Python and from the shell, with a DataFrame and a .csv file; this process runs the server."""
    entry = tmp_path / "repository" / "sums"
    (entry / "1").mkdir(parents=True)
    (entry / "1" / "model.py").write_text(MODEL)
    (entry / "config.pbtxt").write_text(CONFIG.format(name="sums", instances=1))
    (tmp_path / "rows.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    code = """
import sys, pandas as pd, triton_regressors as tr
with tr.Client(sys.argv[1]) as client:
    print(client.predict("sums", pd.read_csv("rows.csv")).tolist())
"""
    with triton_server([tmp_path / "repository"]) as server:
        assert run(client, "-c", code, server.grpc_url, cwd=tmp_path) == "[12.0, 30.0]\n"
        command = [client.parent / "triton-regressors", "predict", "sums", "rows.csv", "--url", server.grpc_url]
        shown = run(*command, cwd=tmp_path)
        assert [float(number) for number in re.findall(r"\b(?:12|30)(?:\.0)?\b", shown)] == [12, 30]
        (tmp_path / "rows.parquet").touch()
        lacks = "needs pyarrow, not installed here; `pip install 'triton-regressors[parquet]'` brings it.\n"
        for given, does in (("rows.csv", "Writing y.parquet"), ("rows.parquet", "Reading rows.parquet")):
            command[3] = given
            done = subprocess.run(
                [*command, *(["--output", "y.parquet"] if given == "rows.csv" else [])],
                cwd=tmp_path, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.stderr == f"Error: {does} {lacks}"


APART = {"boosters", "mlflow", "ray"}
"""The extras that `all` leaves out. XGBoost is here by another name, that of its build for CPUs, and Ray is not."""


@pytest.mark.parametrize("extra", [*sorted(EXTRAS.keys() - APART), "all"])
def test_an_extra_can_be_installed(built: Path, extra: str) -> None:
    """Beside what it requires, of the versions that are installed here, pip finds it whole; nothing is downloaded."""
    python = install(built, extra)
    wheel = built / f"{NAME}-py3-none-any.whl"
    run(sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-index", "--dry-run",
        f"{wheel}[{extra}]", cwd=built)  # fmt: skip
    code = "import sys; from triton_regressors.extras import require; require(sys.argv[1], 'This')"
    for each in EXTRAS.keys() - APART if extra == "all" else [extra]:
        run(python, "-c", code, each, cwd=built)


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_elsewhere_than_on_linux_nothing_is_asked_for_that_there_is_only_there(client: Path, system: str) -> None:
    (packages,) = client.parents[1].glob("lib/python3*/site-packages")
    (dist_info,) = packages.glob("triton_regressors-*.dist-info")
    asked = {
        requirement.name
        for extra in ("", *EXTRAS, "all")
        for requirement in requirements(Distribution.at(dist_info), extra, system)
    }
    assert {"tritonclient", "scikit-learn", "matplotlib"} < asked
    assert not asked & {"torch", "triton"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_the_packages_that_are_asked_for(client: Path, extra: str) -> None:
    (packages,) = client.parents[1].glob("lib/python3*/site-packages")
    (dist_info,) = packages.glob("triton_regressors-*.dist-info")
    brought = {
        IMPORTED_AS.get(requirement.name, requirement.name)
        for requirement in requirements(Distribution.at(dist_info), extra)
    } - {requirement.name for requirement in requirements(Distribution.at(dist_info))}
    assert brought == set(EXTRAS[extra])


def test_the_page_on_installation_names_every_command() -> None:
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    assert INSTALL_SERVER in page
    for extra in (*EXTRAS, "all"):
        assert f"`[{extra}]`" in page, extra
