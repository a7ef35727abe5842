"""Fleets on a Triton server, by their number of models: beside one model's entry, and a loop over scikit-learn models.

    python -m benchmarks.served.fleets [--quick | --rounds N] [--fleets ridge ...] [--members 1 1000 ...]
                                     [--entries N] [--no-loop] [--output DIR]

Members are fitted one by one, each on rows of its own, and exported. "fleet" is their entry; "one model" is the entry
of one of them; "loop" is a Python-backend model with a dict of the same estimators, which a user writes by hand;
"nothing" is a model that does nothing. One server loads them one after the other, and the memory that each takes is
noted. Then all are asked in turn for one row a request, over gRPC under dynamic batching. Requests to the fleet and the
loop name drawn models. Ids are INT64, so that the loop reads them with any numpy. "joined" is the fleet too, asked with
one tensor that has the bytes of each row and of its id, as `Client` asks it, and "by number" with one that has each row
and the number of its model. "nothing by ids" is the model that does nothing, asked with the two tensors of requests
with ids, where one row alone is sent to "nothing": the second tensor's cost to the server.

`--export-cores` lets exports use that many cores, as on a small machine. `--entries N` loads N entries of one model
beside the others, or as many of them as fit in the memory of the machine and of the GPU, and asks them in turn.
`--no-loop` leaves out the loop, which needs the libraries of the models in the server's Python.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import joblib
import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from xgboost import XGBRegressor

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import TEN_KINDS
from benchmarks.served.requests import QUICK, Measure, four_digits, measuring
from benchmarks.timing import rotated
from triton_regressors import export, export_fleet
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.client.configuration import Configuration
from triton_regressors.clients.client.tensors import Tensors
from triton_regressors.clients.compare.load.generator import Load
from triton_regressors.clients.compare.load.members import draw_rows
from triton_regressors.clients.compare.load.payloads import CheckedRows
from triton_regressors.clients.compare.session.session import FLOOR_SOURCE, floor_config
from triton_regressors.clients.errors import ServerFault
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.model_config import from_pbtxt, to_pbtxt

FLEET, JOINED, NUMBERED, ONE, LOOP = "fleet", "fleet_joined", "fleet_by_number", "one_model", "loop"
NOTHING, NOTHING_NAMED = "nothing", "nothing_by_ids"
ENTRIES = "entries"
ASKED_TOO = (JOINED, NUMBERED, NOTHING, NOTHING_NAMED)
"""What is asked besides the entries that were loaded with their memory noted."""
LOADS = tuple(Load("grpc", 1, concurrency=clients) for clients in (1, 64, 256))
COLUMNS, FITTED = 32, 200
ROUNDS = 5
"""Each of three short windows: a share is that of one round, in which all are asked shortly after each other."""
ROUNDS_OF_ONE = 3
"""One client has so many times the rounds: a round differs from the next by more than the microseconds in question."""
MOST_IN_LOOP = 10_000
"""The most scikit-learn models that the loop holds: 100,000 of them take minutes to load."""
MOST_DIFFERENT = 4096
ROWS_OF_ENTRY, AT_ONCE = 4, 8
ERROR, ERROR_OF_LOOP = 1e-6, 1e-3
"""The largest error of answers, in standard deviations; the loop's come from float32 rows and are rounded."""

FLEETS: dict[str, tuple[Callable[[int], Any], tuple[int, ...]]] = {
    "ridge": (lambda number: make_pipeline(StandardScaler(), Ridge()), (1, 10, 100, 1000, 10_000, 100_000)),
    "boosted": (lambda number: HistGradientBoostingRegressor(max_iter=100, early_stopping=False), (1000,)),
    "xgboost": (lambda number: XGBRegressor(n_estimators=100, n_jobs=1), (1000,)),
    "svr": (lambda number: make_pipeline(StandardScaler(), SVR()), (1000,)),
    "mixed": (lambda number: make_pipeline(StandardScaler(), TEN_KINDS[number % 10]()), (500,)),
}
"""For each fleet an estimator by its number, and how many members there are."""


def rows(number: int, count: int = FITTED) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a member and their targets; members see columns in units of their own."""
    rng = np.random.default_rng(number)
    X = rng.standard_normal((count, COLUMNS)) * rng.uniform(0.5, 20, COLUMNS) + rng.uniform(-5, 5, COLUMNS)
    return X, X[:, 0] + np.abs(X[:, 1]) + X @ rng.standard_normal(COLUMNS) / 10 + rng.standard_normal(count)


def fitted(fleet: str, number: int) -> Any:
    """Return a fitted member."""
    return FLEETS[fleet][0](number).fit(*rows(number))


def fit_all(fleet: str, members: int) -> dict[int, Any]:
    """Return the fitted members by their numbers."""
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        work = (joblib.delayed(fitted)(fleet, number) for number in range(members))
        return dict(enumerate(joblib.Parallel(n_jobs=joblib.cpu_count(), batch_size=16)(work)))


@contextmanager
def cores(count: int | None) -> Iterator[None]:
    """Let this process use that many cores only; None: all that it may."""
    before = os.sched_getaffinity(0)
    try:
        if count is not None:
            os.sched_setaffinity(0, sorted(before)[:count])
        yield
    finally:
        os.sched_setaffinity(0, before)


def write_repository(directory: Path, models: dict[int, Any], export_cores: int | None, loop: bool) -> dict[str, Any]:
    """Write all entries; return how long the fleet's export took and how large the entry is."""
    with cores(export_cores):
        begin = time.perf_counter()
        entry = export_fleet(models, directory, name=FLEET, by="id", instances=1).entry
        seconds = time.perf_counter() - begin
        used = len(os.sched_getaffinity(0))
    export(models[0], directory, name=ONE, instances=1)
    config = floor_config(from_pbtxt((directory / FLEET / "config.pbtxt").read_text(encoding="utf-8")))
    codes = {NOTHING: FLOOR_SOURCE}
    if loop and len(models) <= MOST_IN_LOOP:
        codes[LOOP] = Path(__file__).with_name("estimators_model.py")
    for name, code in codes.items():
        config.name = name
        version = directory / name / "1"
        version.mkdir(parents=True)
        shutil.copyfile(code, version / "model.py")
        (version.parent / "config.pbtxt").write_text(to_pbtxt(config), encoding="utf-8")
        if name == LOOP:
            (version / "estimators.pkl").write_bytes(pickle.dumps(models))
    size = sum(path.stat().st_size for path in entry.version_directory.rglob("*") if path.is_file())
    return {"export_s": four_digits(seconds), "export_cores": used, "entry_bytes": size}


def sent(models: dict[int, Any], directory: Path) -> dict[str, CheckedRows]:
    """Return the rows that each entry in this directory is asked for, and the answers that it must give."""
    inputs, own_dtype = _inputs(directory / FLEET), _inputs(directory / ONE).dtype
    numbers = {int(each): number for number, each in enumerate(inputs.models)}
    known = np.array(sorted(models)) if len(models) <= MOST_DIFFERENT else _spread(len(models))
    drawn = known[draw_rows(np.arange(len(known)), "uniform")][:MOST_DIFFERENT]
    X = np.stack([rows(int(number), 1)[0][0] for number in drawn]).astype(np.float32)
    exact, given = X.astype(np.float64), X.astype(inputs.dtype)
    answers = np.array([[models[int(number)].predict(row[None])[0]] for number, row in zip(drawn, exact, strict=True)])
    own = models[0].predict(exact)[:, None]
    scale, ids = float(np.std(answers)), drawn[:, None].astype(np.int64)
    named = CheckedRows({"X": given, "id": ids}, answers, ERROR * scale, MOST_DIFFERENT)
    numbered = np.hstack([given, np.array([[numbers[int(number)]] for number in drawn], dtype=inputs.dtype)])
    return {
        FLEET: named,
        JOINED: CheckedRows(_joined(directory / FLEET, named.tensors), answers, ERROR * scale, MOST_DIFFERENT),
        NUMBERED: CheckedRows({"X_id_number": numbered}, answers, ERROR * scale, MOST_DIFFERENT),
        ONE: CheckedRows({"X": X.astype(own_dtype)}, own, ERROR * float(np.std(own)), MOST_DIFFERENT),
        LOOP: CheckedRows({"X": given, "id": ids}, answers, ERROR_OF_LOOP * scale, MOST_DIFFERENT),
        NOTHING: CheckedRows({"X": given}, answers, ERROR, MOST_DIFFERENT).zeros(),
        NOTHING_NAMED: named.zeros(),
    }


def _inputs(entry: Path) -> Inputs:
    return read_document(entry / "1", check_files=False).inputs


def _joined(entry: Path, tensors: Tensors) -> Tensors:
    """Return the one tensor in which a client sends rows and ids to an entry."""
    found = Configuration.of(from_pbtxt((entry / "config.pbtxt").read_bytes())).sent(tensors)
    assert len(found) == 1
    return found


def _spread(members: int) -> np.ndarray:
    return np.random.default_rng(1).permutation(members)[:MOST_DIFFERENT]


def memory_of(name: str, server: TritonServer, client: Client) -> dict[str, float]:
    """Load a model; return the seconds that it took, and the memory of its process and on the GPU, in bytes."""
    before, free = _processes(), _free()
    begin = time.perf_counter()
    client.load(name)
    seconds = time.perf_counter() - begin
    new = [process for process in _processes() if process not in before]
    return {
        "load_s": four_digits(seconds),
        "rss_bytes": sum(map(_resident, new)),
        "gpu_bytes": free - _free(),
    }


def _free() -> int:
    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else 0


def _processes() -> list[int]:
    """Return the processes of Python-backend models on this machine."""
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and "triton_python_backend_stub" in _read(path / "cmdline")
    ]


def _resident(process: int) -> int:
    lines = _read(Path("/proc") / str(process) / "status").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def add_entries(
    directory: Path, models: dict[int, Any], client: Client, one: Mapping[str, float], most: int
) -> tuple[dict[str, Any], dict[str, CheckedRows]]:
    """Export and load entries of one model, at most `most`; return what they take, and the rows to ask each for.

    Memory that suffices for `one` in each is not all that entries need: the first that does not load ends it.
    """
    begin = time.perf_counter()
    there = {"rss_bytes": _available(), "gpu_bytes": _free()}
    fit = min(int(free // one[kind]) for kind, free in there.items() if one[kind])
    made = {f"{ENTRIES}_{number:06}": number for number in list(models)[: min(fit, most)]}
    for name, number in made.items():
        export(models[number], directory, name=name, instances=1)
    exported, free, before = time.perf_counter(), _free(), _processes()
    full = list[str]()

    def fits(name: str) -> bool:
        try:
            if not full:
                client.load(name)
        except ServerFault as error:
            full.append(str(error))
        return not full

    with ThreadPoolExecutor(AT_ONCE) as pool:
        chosen = {name: made[name] for name, loaded in zip(made, pool.map(fits, made), strict=True) if loaded}
    found = {
        "count": len(chosen),
        "full": full[0] if full else None,
        "export_s": four_digits(exported - begin),
        "load_s": four_digits(time.perf_counter() - exported),
        "rss_bytes": sum(_resident(process) for process in _processes() if process not in before),
        "gpu_bytes": free - _free(),
    }
    asked = {}
    for name, number in chosen.items():
        X = rows(number, ROWS_OF_ENTRY)[0].astype(np.float32)
        answers = models[number].predict(X.astype(np.float64))[:, None]
        given = {"X": X.astype(_inputs(directory / name).dtype)}
        asked[name] = CheckedRows(given, answers, ERROR * float(np.std(answers)), ROWS_OF_ENTRY)
    return found, asked


def _available() -> int:
    """Return how much memory the machine has to give, in bytes."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def measure(
    fleet: str, members: int, rounds: int, export_cores: int | None, entries: int = 0, loop: bool = True
) -> dict[str, Any]:
    """Fit, export, load and ask a fleet and what stands beside it; return the figures."""
    models = fit_all(fleet, members)
    with tempfile.TemporaryDirectory() as directory:
        found: dict[str, Any] = {"case": _case(fleet, members), "fleet": fleet, "members": members}
        found |= write_repository(Path(directory), models, export_cores, loop)
        print(f"{fleet}, {members:,} models: exported in {found['export_s']:,} s, {found['entry_bytes']:,} bytes")
        names = [name for name in (ONE, FLEET, LOOP) if (Path(directory) / name).is_dir()]
        with TritonServer([directory], models=[NOTHING]) as server, Client(server.grpc_url, timeout_s=300) as client:
            found["memory"] = {name: memory_of(name, server, client) for name in names}
            asked: dict[str, Any] = sent(models, Path(directory))
            names += ASKED_TOO
            if entries:
                found["entries"], asked[ENTRIES] = add_entries(
                    Path(directory), models, client, found["memory"][ONE], entries
                )
                names.append(ENTRIES)
            with measuring(server.grpc_url, QUICK, "builtin", LOADS) as ask:
                of_loads = {
                    load: [
                        {name: _figures(ask, name, asked[name], load) for name in rotated(names, number)}
                        for number in range(rounds * (ROUNDS_OF_ONE if load.concurrency == 1 else 1))
                    ]
                    for load in LOADS
                }
    found["points"] = [_median(load, of_rounds) for load, of_rounds in of_loads.items()]
    for name, memory in found["memory"].items():
        print(f"  {name}: {memory}")
    for point in found["points"]:
        print(f"  {point}", flush=True)
    return found


def _figures(ask: Measure, name: str, checked: CheckedRows | Mapping[str, CheckedRows], load: Load) -> dict[str, float]:
    entry = {JOINED: FLEET, NUMBERED: FLEET, NOTHING_NAMED: NOTHING, ENTRIES: f"{ENTRIES}_{0:06}"}.get(name, name)
    figures = ask(entry, checked, load)
    if figures.failed:
        raise ValueError(f"{name}: {dict(figures.errors)}")
    return {
        "requests_per_s": figures.requests_per_s,
        "p50_us": figures.latency.p50_ms * 1e3,
        "p99_us": figures.latency.p99_ms * 1e3,
    }


def _median(load: Load, of_rounds: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return the medians of the rounds, the fleet's beside one model's among them."""
    point: dict[str, Any] = {"clients": load.concurrency, "rounds": len(of_rounds)}
    for name in sorted(of_rounds[0]):
        point[name] = {key: four_digits(median(each[name][key] for each in of_rounds)) for key in of_rounds[0][name]}
    for name, peer in ((JOINED, ONE), (NUMBERED, ONE), (NOTHING_NAMED, NOTHING)):
        point[name] |= _beside(of_rounds, name, peer)
    return {**point, **_beside(of_rounds, FLEET, ONE)}


def _beside(of_rounds: Sequence[dict[str, dict[str, float]]], name: str, peer: str) -> dict[str, float]:
    """Return the throughput of what is asked as a share of a peer's, and its p50 beyond the peer's with quartiles."""
    share = [each[name]["requests_per_s"] / each[peer]["requests_per_s"] for each in of_rounds]
    over = [each[name]["p50_us"] - each[peer]["p50_us"] for each in of_rounds]
    low, middle, high = map(four_digits, np.percentile(over, (25, 50, 75)))
    return {
        f"of_{peer}": four_digits(median(share)),
        f"p50_over_{peer}_us": middle,
        f"p50_over_{peer}_us_quartiles": [low, high],
    }


def run(
    directory: Path,
    *,
    rounds: int = ROUNDS,
    fleets: Sequence[str] = tuple(FLEETS),
    members: Sequence[int] | None = None,
    export_cores: int | None = None,
    entries: int = 0,
    loop: bool = True,
) -> Path | None:
    """Measure the fleets and write served_fleets.json, in which each has its own number of rounds."""
    print(f"fleets on {device_name()}")
    path, asked = None, set(members or ())
    order = [_case(fleet, size) for fleet, (_, sizes) in FLEETS.items() for size in sorted(asked | {*sizes})]
    for fleet in fleets:
        for count in members or FLEETS[fleet][1]:
            of_case = {"rounds": rounds, "busy_at_start": busy()}
            result = of_case | measure(fleet, count, rounds, export_cores, entries, loop)
            path = save_models(directory, "served_fleets", {}, [result], order, among="fleets", key="case")
    return path


def _case(fleet: str, members: int) -> str:
    return f"{fleet}, {members:,}"


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", dest="rounds", action="store_const", const=1, help="one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"one client has {ROUNDS_OF_ONE} times as many")
    parser.add_argument("--fleets", nargs="+", choices=FLEETS, default=list(FLEETS), help="these; others' figures stay")
    parser.add_argument("--members", nargs="+", type=int, default=None, help="how many models")
    parser.add_argument("--export-cores", type=int, default=None, help="how many cores exports use")
    parser.add_argument("--entries", type=int, default=0, help="so many entries of one model too, if they fit")
    parser.add_argument("--no-loop", dest="loop", action="store_false", help="not the loop over scikit-learn's models")
    parser.add_argument("--output", type=Path, default=None, help="directory of served_fleets.json")
    arguments = parser.parse_args()
    directory = arguments.output or default_directory()
    options = {
        name: getattr(arguments, name) for name in ("rounds", "fleets", "members", "export_cores", "entries", "loop")
    }
    run(directory, **options)


if __name__ == "__main__":
    main()
