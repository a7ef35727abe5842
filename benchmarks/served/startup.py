"""Gain of kernels compiled ahead: the time until a server is ready, without and with them.

    python -m benchmarks.served.startup [--quick] [--rounds N] [--models nothing linear all] [--output DIR]

Each family's model of medium size is served alone, and then all of them together. A start ends when the Triton
server has loaded every entry, which has then answered its golden rows; its kernels come from an empty cache, or from
one that docker/warm.py has filled as it does for an image. A repository of one model that does nothing is started
beside them: its time is the server's own.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import FAMILIES, SIZES, Model
from triton_regressors import export
from triton_regressors.clients.compare.session.session import FLOOR_SOURCE, floor_config
from triton_regressors.clients.server.installation import find_installation, prepare
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.model_config import from_pbtxt, to_pbtxt

SOURCES: dict[str, Model] = {family: models[SIZES.index("medium")] for family, (_, models) in FAMILIES.items()}
FIRST, NOTHING, ALL = next(iter(SOURCES)), "nothing", "all"
TITLES = {NOTHING: "A model that does nothing", ALL: f"All {len(SOURCES)} families in one repository"}
NAMES = (NOTHING, *SOURCES, ALL)
ROUNDS = 3
LONGEST_S = 600

DOCKER = Path(__file__).parents[2] / "docker"


def write_repository(directory: Path, name: str) -> None:
    """Export one model, or all of them, or write one that does nothing."""
    families = list(SOURCES) if name == ALL else [FIRST if name == NOTHING else name]
    for family in families:
        source = SOURCES[family]
        export(source.estimator, directory, name=family, sample=source.sample())
    if name == NOTHING:
        nothing = floor_config(from_pbtxt((directory / FIRST / "config.pbtxt").read_text(encoding="utf-8")))
        shutil.rmtree(directory / FIRST)
        version = directory / nothing.name / "1"
        version.mkdir(parents=True)
        shutil.copyfile(FLOOR_SOURCE, version / "model.py")
        (version.parent / "config.pbtxt").write_text(to_pbtxt(nothing), encoding="utf-8")


def caches(directory: Path) -> dict[str, str]:
    """Return the environment variables that put kernels' caches into a directory."""
    return {"TRITON_CACHE_DIR": str(directory / "triton"), "CUDA_CACHE_PATH": str(directory / "cuda")}


def start_s(repository: Path, cache: Path) -> float:
    """Return how long a server takes until it has loaded a repository, with kernels from a cache."""
    begin = time.perf_counter()
    with TritonServer([repository], environment=caches(cache), startup_timeout_s=LONGEST_S):
        return time.perf_counter() - begin


def warm(repository: Path, cache: Path) -> None:
    """Fill a cache by docker/warm.py.

    Raises:
        RuntimeError: It did not, and has printed why.
    """
    sys.path.insert(0, str(DOCKER))
    try:
        import warm as script  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(DOCKER))
    with tempfile.TemporaryDirectory() as scratch:
        runtime = prepare(find_installation(repository), None, caches(cache), Path(scratch))
        command = [str(runtime.executable), f"--backend-directory={runtime.backends}"]
        if script.main(str(repository), command, runtime.environment):
            raise RuntimeError(f"docker/warm.py compiled nothing for {repository}.")


def measure(repository: Path, rounds: int, *, compiles: bool) -> dict[str, list[float]]:
    """Return the seconds of starts from an empty cache, ordered, and from one filled ahead if there is any."""
    found: dict[str, list[float]] = {"empty_s": []}
    with tempfile.TemporaryDirectory() as scratch:
        filled = Path(scratch) / "filled"
        if compiles:
            warm(repository, filled)
            found["ahead_s"] = []
        for number in range(rounds):
            found["empty_s"].append(start_s(repository, Path(scratch) / f"empty-{number}"))
            if compiles:
                found["ahead_s"].append(start_s(repository, filled))
    return {key: sorted(round(value, 2) for value in values) for key, values in found.items()}


def run(directory: Path, *, quick: bool = False, rounds: int = ROUNDS, models: Sequence[str] = NAMES) -> None:
    """Measure and write startup.json after each model."""
    if not torch.cuda.is_available():
        raise SystemExit(
            "benchmarks.served.startup needs a GPU: without one nothing is compiled, and torch finds none."
        )
    print(f"starts on {device_name()}")
    settings = {"quick": quick, "busy_at_start": busy()}
    for name in models:
        with tempfile.TemporaryDirectory() as scratch:
            write_repository(Path(scratch), name)
            seconds = measure(Path(scratch), 1 if quick else rounds, compiles=name != NOTHING)
        title = TITLES[name] if name in TITLES else SOURCES[name].title
        print(
            f"  {title:<44} " + ", ".join(f"{key} {median(values):.1f}" for key, values in seconds.items()), flush=True
        )
        save_models(directory, "startup", settings, [{"model": name, "title": title, **seconds}], NAMES)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often to start each")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES, help="these alone; others' figures stay")
    parser.add_argument("--output", type=Path, default=None, help="directory of startup.json")
    arguments = parser.parse_args()
    options = {"quick": arguments.quick, "rounds": arguments.rounds, "models": arguments.models}
    run(arguments.output or default_directory(), **options)


if __name__ == "__main__":
    main()
