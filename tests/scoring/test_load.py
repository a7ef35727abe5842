"""`tr.load`: rows from any library, answers on the rows' device, and the same bits from any form of rows."""

import mmap
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import triton_regressors as tr
from triton_regressors.scoring.model_instance import _loaded

NAMES = ["age", "bmi", "bp"]
GPU = pytest.param("cuda:0", marks=pytest.mark.gpu)
X = np.random.default_rng(0).normal(size=(3000, 3)).astype(np.float32)


class Library:
    """A library of arrays with DLPack alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.asked = tensor, dict[str, Any]()

    def __dlpack__(self, **options: Any) -> Any:
        self.asked = options
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class WithNamespace(Library):
    """A library that also makes arrays."""

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=lambda given: WithNamespace(torch.from_dlpack(given)))


class Locked(Library):
    """A library that hands nothing out."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("it is locked")


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Entries: risk with std and an interval, two targets, missing numbers with categories, and strings."""
    repository = tmp_path_factory.mktemp("models")
    table, random = pd.DataFrame(X[:500], columns=NAMES), np.random.default_rng(1)
    y = table @ [1.0, 2.0, 0.1] + random.normal(size=500)
    held = (table[:200], y[:200])
    tr.export(BayesianRidge().fit(table, y), repository, name="risk", sample=table, calibrate=held, input="fp32")
    tr.export(Ridge().fit(X, X[:, :2]), repository, name="two", sample=X[:100], input="fp32")
    coded = np.column_stack([random.integers(0, 5, 500), X[:500, 1:]])
    coded[::7, 1] = np.nan
    codes = HistGradientBoostingRegressor(max_iter=20, categorical_features=[0]).fit(coded, y)
    tr.export(codes, repository, name="codes", sample=coded, input="fp32")
    words = table.assign(city=["Bonn", "Ulm"] * 250)
    encoder = ColumnTransformer([("place", OneHotEncoder(), ["city"])], remainder="passthrough")
    tr.export(make_pipeline(encoder, Ridge()).fit(words, y), repository, name="words", sample=words, input="fp32")
    return repository


@pytest.fixture(name="risk", params=["cpu", GPU])
def loaded(request: pytest.FixtureRequest, entries: Path) -> tr.Model:
    return tr.load(entries / "risk", device=request.param)


def place(model: tr.Model) -> torch.device:
    return torch.device(model.device)


def test_rows_of_any_library_have_one_answer(risk: tr.Model) -> None:
    wanted = risk.predict(X)
    assert (type(wanted), wanted.shape, wanted.dtype) == (np.ndarray, (len(X),), np.float32)
    frame = pd.DataFrame(X, columns=NAMES)
    arrow = pa.Table.from_pandas(frame)
    columns = {name: X[:, column] for column, name in enumerate(NAMES)}
    given = [X.astype(np.float64), frame[NAMES[::-1]], frame.assign(other="words"), arrow, arrow.to_batches()[0]]
    given += [
        columns,
        {name: arrow[name].combine_chunks() for name in NAMES},
        {"X": X},
        {"X": frame},
        np.asfortranarray(X),
    ]
    for rows in given:
        found = risk.predict(rows)
        assert type(found) is np.ndarray
        assert (found.shape, found.tobytes()) == (wanted.shape, wanted.tobytes())
    assert risk.predict(X[:2].tolist()).tobytes() == wanted[:2].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64", "bool"])
def test_tensors_are_answered_where_they_are(risk: tr.Model, dtype: str) -> None:
    """Rows come in every type, shape, order and offset in memory, and as a mapping by input or by column."""
    rows = torch.from_numpy(X * 3).to(getattr(torch, dtype)).to(place(risk))
    wanted = risk.predict(rows.cpu().to(torch.float64).numpy())
    for given in (rows, rows.T.contiguous().T, {"X": rows}, torch.nn.functional.pad(rows, (1, 2))[:, 1:4]):
        found = risk.predict(given)
        assert type(found) is torch.Tensor
        assert (found.device, found.dtype, found.shape) == (place(risk), torch.float32, (len(X),))
        assert found.cpu().numpy().tobytes() == wanted.tobytes()
    for some in (slice(1), slice(1, 2), slice(1, 700), slice(None, None, 2)):
        assert risk.predict(rows[some]).cpu().numpy().tobytes() == wanted[some].tobytes()
    found = risk.predict({name: rows[:, column] for column, name in enumerate(NAMES)})
    assert (found.device, found.cpu().numpy().tobytes()) == (place(risk), wanted.tobytes())


@pytest.mark.parametrize("kind", [Library, WithNamespace])
def test_dlpack_goes_in_and_out(risk: tr.Model, kind: type[Library]) -> None:
    rows = kind(torch.from_numpy(X).to(place(risk)))
    wanted = risk.predict(X)
    found = risk.predict(rows)
    if place(risk).type == "cuda":  # by the protocol 1 is the default stream
        assert rows.asked["stream"] == (torch.cuda.current_stream(place(risk)).cuda_stream or 1)
    if kind is WithNamespace:
        assert type(found) is WithNamespace
        found = found.tensor
    assert type(found) is torch.Tensor
    assert (found.device, found.cpu().numpy().tobytes()) == (place(risk), wanted.tobytes())


@pytest.mark.parametrize("rows", [1, 40, 3000])
def test_rows_as_the_model_reads_them_and_rows_that_only_look_so(risk: tr.Model, rows: int) -> None:
    """The short path is for contiguous rows of the input's type; the first call of a size and all later ones agree."""
    given = torch.from_numpy(np.resize(X, (rows, 3))).to(place(risk))
    wanted = risk.predict(given.double()).cpu().numpy()
    alike: list[Any] = [given, torch._neg_view(-given), torch.nn.Parameter(given, requires_grad=False)]
    alike += [given.T.contiguous().T, torch.cat([given, given])[rows:]]
    with torch.inference_mode():
        alike.append(given * 1)
        found = [risk.predict(given)]
    assert not (found[0].is_cuda and found[0].is_inference())
    found += [risk.predict(each) for each in alike for _ in range(2)]
    for answer in found:
        assert (type(answer), answer.device, answer.cpu().numpy().tobytes()) == (
            torch.Tensor,
            place(risk),
            wanted.tobytes(),
        )
    found[1].fill_(0)  # which nobody shares
    assert risk.predict(given).cpu().numpy().tobytes() == found[2].cpu().numpy().tobytes() == wanted.tobytes()
    array = given.cpu().numpy().copy()
    array.flags.writeable = False
    for lying in (array, np.asfortranarray(array), array.astype(">f4"), array.view(np.ma.MaskedArray)):
        answer = risk.predict(lying)
        assert type(answer) is np.ndarray
        assert answer.tobytes() == wanted.tobytes()
        answer += 1
    with torch.no_grad():
        assert risk.predict(given.clone().requires_grad_()).cpu().numpy().tobytes() == wanted.tobytes()


def test_an_entry_of_an_earlier_release_gives_the_same_bits(risk: tr.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no short path for contiguous rows."""
    rows = torch.from_numpy(X[:40]).to(place(risk))
    asks: list[Any] = [X[:40], rows, pd.DataFrame(X[:40], columns=NAMES)]
    wanted = [risk.predict(each) for each in asks for _ in range(2)]
    assert risk._model().takes(X[:40])
    assert risk._model().takes(rows) == rows.is_cuda
    monkeypatch.setattr(risk._model(), "_prepared", None)
    monkeypatch.setattr(risk._model(), "_executor", None)
    assert not risk._model().takes(X[:40])
    assert not risk._model().takes(rows)
    found = [risk.predict(each) for each in asks for _ in range(2)]
    for one, other in zip(found, wanted, strict=True):
        assert torch.as_tensor(one).cpu().numpy().tobytes() == torch.as_tensor(other).cpu().numpy().tobytes()


@pytest.mark.parametrize("stands_in_the_way", ["memfd_create", "mmap"])
def test_a_system_that_gives_no_shared_memory_computes_the_same(
    entries: Path, stands_in_the_way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance then publishes no start time of its computing."""
    words, asked = pd.DataFrame(X[:5], columns=NAMES).assign(city="Ulm"), []
    wanted = tr.load(entries / "words", device="cpu").predict(words)

    def refuse(*given: Any, **_: Any) -> Any:
        asked.append(given)
        raise OSError("none is left")

    monkeypatch.setattr(mmap if stands_in_the_way == "mmap" else os, stands_in_the_way, refuse)
    _loaded.cache_clear()  # the entry is loaded anew
    assert np.array_equal(tr.load(entries / "words", device="cpu").predict(words), wanted)
    assert asked


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 700, 200_000])
def test_cupy_gets_its_own_arrays(entries: Path, rows: int) -> None:
    """Rows come on CuPy's current stream, which torch waits for, and CuPy then waits for torch's stream."""
    cupy = pytest.importorskip("cupy")
    model, given = tr.load(entries / "risk", device="cuda:0"), np.resize(X, (rows, 3))
    wanted = model.predict(given)
    for _ in range(2):
        with cupy.cuda.Stream(non_blocking=True):
            found = model.predict(cupy.asarray(given) * 1)
            y, std = model.predict(cupy.asfortranarray(cupy.asarray(given, dtype=cupy.float64)), return_std=True)
            assert type(found) is type(std) is cupy.ndarray
            assert (found.dtype, found.shape, std.shape) == (np.float32, (rows,), (rows,))
            assert cupy.asnumpy(found).tobytes() == cupy.asnumpy(y).tobytes() == wanted.tobytes()
            found[:] = 0
            wrong = cupy.asarray(given)
            wrong[rows - 1, 1] = cupy.nan
            with pytest.raises(tr.InvalidRequest, match=rf"row {rows - 1}, column 1 \('bmi'\) is nan"):
                model.predict(wrong)


def test_every_output_has_its_way(risk: tr.Model, entries: Path) -> None:
    rows = torch.from_numpy(X).to(place(risk))
    assert risk.outputs == ("y", "std", "lower", "upper")
    for given in (X, rows):
        y, std = risk.predict(given, return_std=True)
        lower, upper = risk.predict_interval(given)
        found = risk.infer(given)
        assert list(found) == list(risk.outputs)
        for name, one in zip(risk.outputs, (y, std, lower, upper), strict=True):
            assert type(one) is type(given)
            assert (tuple(one.shape), tuple(found[name].shape)) == ((len(X),), (len(X), 1))
            assert bool((found[name][:, 0] == one).all())
        assert bool((lower < y).all() and (y < upper).all() and (std > 0).all())
        assert list(risk.infer(given, outputs=["std"])) == ["std"]
    two = tr.load(entries / "two", device=risk.device)
    assert tuple(two.predict(rows).shape) == two.predict(X).shape == (len(X), 2)
    for ask, name in ((lambda: two.predict(X, return_std=True), "std"), (lambda: two.predict_interval(X), "lower")):
        with pytest.raises(tr.InvalidRequest, match=rf"^Model 'two' has no output '{name}'; it has y\.$"):
            ask()
    with pytest.raises(tr.InvalidRequest, match="has outputs, and at least one must be named"):
        risk.infer(X, outputs=[])


@pytest.mark.parametrize("rows", [40, 3000, 200_000])
def test_what_is_refused_is_named_wherever_it_lies(risk: tr.Model, rows: int) -> None:
    for value, why in (
        (np.nan, r"^X must be finite: row {}, column 1 \('bmi'\) is nan\.$"),
        (np.inf, r"^X must be finite: row {}, column 1 \('bmi'\) is inf\.$"),
        (1e300, r"^X\[{}, 1\] \('bmi'\) is 1e\+300, beyond float32, whose largest value is about 3\.4e38\.$"),
    ):
        wrong = torch.zeros(rows, 3, dtype=torch.float64, device=place(risk))
        wrong[rows - 3, 1] = value
        for given in (wrong.cpu().numpy(), wrong, Library(wrong)):
            with pytest.raises(tr.InvalidRequest, match=why.format(rows - 3)):
                risk.predict(given)
    assert len(risk.predict(wrong[: rows - 3])) == rows - 3


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_missing_numbers_and_categories_are_judged_alike(entries: Path, device: str) -> None:
    codes = tr.load(entries / "codes", device=device)
    rows = torch.from_numpy(np.column_stack([np.arange(100) % 5, X[:100, 1:]])).to(device)
    rows[3, 1] = torch.nan
    for dtype in (torch.float32, torch.float64):
        wanted = codes.predict(rows.cpu().to(dtype).numpy())
        assert codes.predict(rows.to(dtype)).cpu().numpy().tobytes() == wanted.tobytes()
    rows = rows.double()
    rows[7, 0] = 2**24 + 1
    with pytest.raises(tr.InvalidRequest, match=r"X\[7, 0\] is 16777217\.0, a category, which FP32 would round"):
        codes.predict(rows)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_strings_beside_a_tensor(entries: Path, device: str) -> None:
    words = tr.load(entries / "words", device=device)
    cities = np.array([["Bonn"], ["Ulm"]] * 50, dtype=object)
    (text,) = (tensor.name for tensor in words.inputs if tensor.text)
    table = pd.DataFrame(X[:100], columns=NAMES).assign(city=cities[:, 0])
    found = words.predict({"X": torch.from_numpy(X[:100]).to(device), text: cities})
    assert (found.device, found.cpu().numpy().tobytes()) == (torch.device(device), words.predict(table).tobytes())
    with pytest.raises(tr.InvalidRequest, match="has the inputs 'X' and"):
        words.predict(torch.from_numpy(X).to(device))


def test_a_tensor_that_does_not_fit_is_named(risk: tr.Model) -> None:
    rows = torch.from_numpy(X).to(place(risk))
    for given, why in (
        (
            rows[0],
            r"^X has shape \(3,\); it must be two-dimensional, \[rows, .*\]; \.reshape\(1, -1\) makes one row of it",
        ),
        (rows[:0], r"^X has no rows \(shape \(0, 3\)\)"),
        (rows[:, :2], r"^X has shape \(3000, 2\); it must be two-dimensional, \[rows, 3\]\.$"),
        (rows.to(torch.complex64), "^X's columns 'age', 'bmi', 'bp' must be numbers: 'age' holds .*j"),
        (rows.to_sparse(), r"^X is sparse \(torch\.sparse_coo\); use \.to_dense\(\)\.$"),
        (rows.clone().requires_grad_(), r"^X requires a gradient, which answers do not have; give X\.detach\(\)\.$"),
        (rows.to("meta"), "^X lies on meta; rows are taken from CPU memory and CUDA GPUs"),
        ({"X": rows, "Z": rows}, "^Model 'risk' has no input 'Z'; it takes the input 'X'"),
        ({"age": rows[:, 0]}, "lacks columns 'bmi', 'bp'"),
        (Locked(rows), r"^X, tests\.scoring\.test_load\.Locked, cannot be read by DLPack: it is locked\.$"),
    ):
        with pytest.raises(tr.InvalidRequest, match=why):
            risk.predict(given)
    with torch.no_grad():
        assert len(risk.predict(rows.clone().requires_grad_())) == len(X)


def test_where_a_model_computes(entries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("gpu:99", "cuda:99", torch.device("cuda:99")):
        with pytest.raises(tr.ScoringError, match=rf"device is '{device}', and torch finds"):
            tr.load(entries / "risk", device=device)
    with pytest.raises(tr.ScoringError, match=r"There is no entry .*rsk; .* has codes, risk, two, words\."):
        tr.load(entries / "rsk")
    with pytest.raises(tr.InvalidRequest, match="2 columns are named; model 'two' takes 3"):
        tr.load(entries / "two", columns=["a", "b"])
    two = tr.load(entries / "two", columns=["c", "a", "b"], device="cpu")
    frame = pd.DataFrame(X, columns=["c", "a", "b"])
    assert two.predict(frame[["a", "b", "c"]]).tobytes() == two.predict(X).tobytes()
    assert (two.where, repr(two)) == ("torch on the CPU", "<Model two version 1: y>")


@pytest.mark.gpu
def test_rows_on_another_device_than_the_model_are_refused(entries: Path) -> None:
    rows = torch.from_numpy(X).cuda()
    why = "^X lies on cuda:0, and model 'risk' computes on the CPU; load it with device='cuda:0', or give the rows in"
    with pytest.raises(tr.InvalidRequest, match=why):
        tr.load(entries / "risk", device="cpu").predict(rows)


def test_pickled_models_and_threads(risk: tr.Model) -> None:
    rows = torch.from_numpy(X).to(place(risk))
    wanted = risk.predict(rows).cpu().numpy()
    models = [risk, pickle.loads(pickle.dumps(risk))]

    def ask(number: int) -> bool:
        first = number * 37 % 2000
        given: Any = rows[first : first + 700] if number % 3 else X[first : first + 700]
        with torch.cuda.stream(torch.cuda.Stream()) if rows.is_cuda else torch.no_grad():
            found = models[number % 2].predict(given)
        return bool((torch.as_tensor(found).cpu().numpy() == wanted[first : first + 700]).all())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(ask, range(60)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_uses_a_model_on_a_cpu(entries: Path) -> None:
    """It does so even if a thread of its parent was computing and held the model."""
    code = f"""
import os, threading, numpy as np, triton_regressors as tr
model, X = tr.load({str(entries / "risk")!r}, device="cpu"), np.ones((7, 3), np.float32)
wanted, inner, held, leave = model.predict(X), model._model(), threading.Event(), threading.Event()
def hold():
    with inner._lock:
        held.set()
        leave.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    os._exit(0 if (model.predict(X) == wanted).all() else 3)
leave.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "0", done.stderr


def test_what_the_caller_tells_torch_does_not_reach_the_model(risk: tr.Model, entries: Path) -> None:
    """The model does not change torch's settings either."""
    rows = torch.from_numpy(X).to(place(risk))
    wanted = risk.predict(rows, return_std=True)
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
            found = risk.predict(rows, return_std=True)
            assert torch.empty(1).device.type == "meta"
        assert (torch.get_default_dtype(), torch.get_float32_matmul_precision()) == (torch.float64, "medium")
        assert [bool((one == other).all()) for one, other in zip(found, wanted, strict=True)] == [True, True]
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")


def test_loading_takes_no_scikit_learn(entries: Path) -> None:
    code = f"""
import sys, numpy as np, triton_regressors as tr
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sklearn", "skops", "joblib", "pyarrow", "scipy"):
            raise ImportError(name)
sys.meta_path.insert(0, Refused())
print(tr.load({str(entries / "risk")!r}, device="cpu").predict(np.ones((2, 3), np.float32)).shape)
"""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "(2,)", done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 1024, 300_000])
def test_nothing_of_rows_on_a_gpu_goes_through_the_cpu(entries: Path, rows: int) -> None:
    model = tr.load(entries / "risk", device="cuda:0")
    given = torch.from_numpy(np.resize(X, (rows, 3))).cuda()
    asks: list[Callable[[], Any]] = [lambda: model.predict(given), lambda: model.predict_interval(given)]
    for ask in asks:
        ask()
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profiler:
            ask()
        names = [event.name for event in profiler.events()]
        assert not [name for name in names if "DtoH" in name or "HtoD" in name]
        assert [name for name in names if "take_kernel" in name or "search_kernel" in name]


@pytest.mark.gpu
def test_the_bits_on_a_gpu_are_those_of_rows_in_cpu_memory(entries: Path) -> None:
    for name in ("risk", "two", "codes"):
        model = tr.load(entries / name, device="cuda:0")
        rows = np.abs(np.resize(X, (70_000, 3)))
        wanted, there = model.infer(rows), torch.from_numpy(rows).cuda()
        for first, stop in ((0, 1), (3, 1027), (1, 70_000), (0, 70_000)):
            for output, answer in model.infer(there[first:stop]).items():
                assert answer.cpu().numpy().tobytes() == wanted[output][first:stop].tobytes(), (name, output)


@pytest.mark.gpu
def test_models_of_earlier_releases_answer_tensors(entries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their kernels read rows on a GPU, but put no answers there."""
    model = tr.load(entries / "risk", device="cuda:0")
    rows = torch.from_numpy(np.resize(X, (100_000, 3))).cuda()
    wanted = model.predict(rows)
    monkeypatch.delattr(type(model._model()._model.runner), "predict_on_device")
    assert bool((model.predict(rows) == wanted).all())
    rows[99_000, 1] = torch.nan
    with pytest.raises(tr.InvalidRequest, match="row 99000, column 1"):
        model.predict(rows)


@pytest.mark.gpu
def test_a_model_leaves_the_callers_device_and_its_streams_alone(entries: Path) -> None:
    before, stream = torch.cuda.current_device(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        model = tr.load(entries / "risk", device="cuda:0")
        late = torch.full((200_000, 3), torch.nan, device="cuda")
        torch.cuda._sleep(20_000_000)
        late.copy_(torch.from_numpy(np.resize(X, (200_000, 3))), non_blocking=False)
        found = model.predict(late)
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_device() == before
    assert found.cpu().numpy().tobytes() == model.predict(np.resize(X, (200_000, 3))).tobytes()
    with ThreadPoolExecutor(1) as thread:  # which has not used the GPU yet
        assert bool((thread.submit(model.predict, late[:5]).result() == found[:5]).all())
