"""Damaged and crafted .skops files end in one sentence: no hang, no crash, no traceback."""

import io
import json
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import skops.io
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from triton_regressors import ExportError
from triton_regressors.exporter import compile
from triton_regressors.exporter.files.loading import load_estimator

random = np.random.default_rng(0)
X = random.standard_normal((60, 3))
X[:, 1] = random.integers(0, 5, 60)
y = X[:, 0] + X[:, 1]


def is_nodes(array: np.ndarray) -> bool:
    return array.dtype.names is not None and {"left_child", "left"} & set(array.dtype.names) != set()


def rewrite(path: Path, change: Callable[[np.ndarray], Any], which: Callable[[np.ndarray], bool] = is_nodes) -> int:
    """Change, in place or by what is returned, the arrays of a .skops file that `which` picks; return how many."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    changed = 0
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            array = np.load(io.BytesIO(content), allow_pickle=False) if name.endswith(".npy") else None
            if array is not None and which(array):
                changed += 1
                other = change(array)
                buffer = io.BytesIO()
                np.save(buffer, array if other is None else other)
                content = buffer.getvalue()
            archive.writestr(name, content)
    return changed


def rewrite_schema(path: Path, name: str, content: Any) -> None:
    """Replace an attribute that the schema of a .skops file holds as JSON."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    schema, changed = json.loads(parts["schema.json"]), []

    def visit(state: Any) -> None:
        if isinstance(state, dict):
            if isinstance(state.get(name), dict) and state[name].get("__loader__") == "JsonNode":
                state[name]["content"] = json.dumps(content)
                changed.append(name)
            state = list(state.values())
        for part in state if isinstance(state, list) else ():
            visit(part)

    visit(schema)
    assert changed
    with zipfile.ZipFile(path, "w") as archive:
        for part, data in {**parts, "schema.json": json.dumps(schema).encode()}.items():
            archive.writestr(part, data)


def sentence(path: Path) -> str:
    """Return the refusal of a file by `export` before it writes anything."""
    with pytest.raises(ExportError) as raised:
        compile.compile_estimator(load_estimator(path))
    message = str(raised.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


TREE = ("left_child", "right_child", "feature")
BOOSTED = ("left", "right", "feature_idx")
MODELS: dict[str, tuple[Callable[[], Any], tuple[str, str, str]]] = {
    "tree": (lambda: DecisionTreeRegressor(random_state=0), TREE),
    "forest": (lambda: RandomForestRegressor(3, random_state=0), TREE),
    "boosting": (lambda: GradientBoostingRegressor(n_estimators=3, random_state=0), TREE),
    "histogram": (lambda: HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=2), BOOSTED),
}


@pytest.mark.parametrize("damage", ["cycle", "itself", "shared", "beyond", "below", "feature"])
@pytest.mark.parametrize("model", MODELS)
def test_nodes_that_are_no_tree(tmp_path: Path, model: str, damage: str) -> None:
    """A cycle was descended for ever, or doubled the memory at each level; others read whatever lay there."""
    make, (left, right, feature) = MODELS[model]
    skops.io.dump(make().fit(X, y), tmp_path / "m.skops")

    def change(nodes: np.ndarray) -> None:
        inner = np.flatnonzero(nodes[left] > 0)
        match damage:
            case "cycle":
                nodes[right][inner[1]] = 0
            case "itself":
                nodes[left][inner[0]] = inner[0]
            case "shared":
                nodes[left][inner[0]] = nodes[right][inner[0]]
            case "beyond":
                nodes[right][inner[0]] = 2**31 - 1
            case "below":
                nodes[left][inner[0]] = -7 if nodes.dtype[left].kind == "i" else 0
            case "feature":
                nodes[feature][inner[0]] = 10**6

    assert rewrite(tmp_path / "m.skops", change)
    kind = "TreePredictor" if model == "histogram" and damage != "feature" else ".*"
    words = "a feature that is not in" if damage == "feature" else "a node"
    pattern = rf"^Cannot read .*m\.skops: its {kind} does not hold together: .*{words}"
    with pytest.raises(ExportError, match=pattern):
        load_estimator(tmp_path / "m.skops")


def test_so_is_an_estimator_in_memory() -> None:
    """A tree's own arrays are views of its memory: a cycle can be made, and is not descended."""
    model = RandomForestRegressor(3, random_state=0).fit(X, y)
    tree = model.estimators_[1].tree_
    tree.children_left[np.flatnonzero(tree.children_left > 0)[-1]] = 0
    with pytest.raises(
        ExportError, match=r"^Cannot export RandomForestRegressor: its fitted attributes do not fit together \(a "
    ):
        compile.compile_estimator(model)


@pytest.mark.parametrize("count", [0, -5])
def test_a_count_of_nodes_that_is_none(tmp_path: Path, count: int) -> None:
    skops.io.dump(DecisionTreeRegressor().fit(X, y), tmp_path / "m.skops")
    rewrite_schema(tmp_path / "m.skops", "node_count", count)
    assert f"its Tree does not hold together: a tree counts {count} nodes and has" in sentence(tmp_path / "m.skops")


def test_categories_that_no_boosting_has(tmp_path: Path) -> None:
    """Compiled code would look for a set, or for a feature's known categories, where there are none."""
    boosting = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=2, categorical_features=[1])
    model = boosting.fit(X, np.where(X[:, 1] == 2, 5.0, X[:, 0]))
    categorical = model._bin_mapper.is_categorical_
    model._bin_mapper.is_categorical_ = np.zeros_like(categorical)
    skops.io.dump(model, tmp_path / "m.skops")
    assert "a node asks for the category of a feature that has none" in sentence(tmp_path / "m.skops")
    model._bin_mapper.is_categorical_ = categorical
    predictor = next(predictor for (predictor,) in model._predictors if predictor.nodes["is_categorical"].any())
    predictor.raw_left_cat_bitsets = np.zeros((0, 8), dtype=np.uint32)
    skops.io.dump(model, tmp_path / "m.skops")
    assert "a node's set of categories is not there" in sentence(tmp_path / "m.skops")


@pytest.mark.parametrize("algorithm", ["kd_tree", "ball_tree"])
def test_search_trees_of_neighbours_are_built_anew(tmp_path: Path, algorithm: str) -> None:
    """Crafted indices made scikit-learn read beyond its arrays, and the process died."""
    model = KNeighborsRegressor(algorithm=algorithm, leaf_size=5).fit(X, y)
    skops.io.dump(model, tmp_path / "m.skops")
    expected = compile.compile_estimator(load_estimator(tmp_path / "m.skops")).sample.expected["y"]
    names = {"idx_start", "idx_end", "is_leaf", "radius"}

    def wild(array: np.ndarray) -> np.ndarray:
        if array.dtype.names:
            array["idx_end"], array["is_leaf"] = 2**40, 0
            return array
        return np.full_like(array, 2**40)

    changed = rewrite(
        tmp_path / "m.skops",
        wild,
        lambda array: set(array.dtype.names or ()) == names or (array.dtype.kind == "i" and array.shape == (60,)),
    )
    assert changed == 2
    found = compile.compile_estimator(load_estimator(tmp_path / "m.skops"))
    assert np.array_equal(found.sample.expected["y"], expected)


def test_support_vectors_that_are_not_there(tmp_path: Path) -> None:
    model = SVR().fit(X, y)
    model._n_support = np.full(4000, len(model.support_), dtype=np.int32)
    skops.io.dump(model, tmp_path / "m.skops")
    assert "its SVR does not hold together: _n_support must be [2]." in sentence(tmp_path / "m.skops")


def test_splines_whose_degree_is_beyond_their_knots(tmp_path: Path) -> None:
    model = make_pipeline(SplineTransformer(), Ridge()).fit(X, y)
    model[0].bsplines_[1].k = 100
    skops.io.dump(model, tmp_path / "m.skops")
    assert "its BSpline does not hold together: 11 knots in ascending order do not go with degree 100" in sentence(
        tmp_path / "m.skops"
    )


def test_sparse_matrices_whose_columns_are_beyond_their_shape(tmp_path: Path) -> None:
    model = SVR().fit(scipy.sparse.csr_matrix(X), y)
    model.support_vectors_.indices[3] = 2**30
    skops.io.dump(model, tmp_path / "m.skops")
    assert "its csr_matrix does not hold together: " in sentence(tmp_path / "m.skops")


INCONSISTENT: dict[str, tuple[Callable[[Any], Any], str]] = {
    "coef": (
        lambda model: setattr(model[1], "coef_", np.ones(7)),
        "Ridge (step 'ridge'): its fitted attributes do not fit",
    ),
    "no coef": (lambda model: delattr(model[1], "coef_"), "Ridge (step 'ridge'): "),
    "coef of words": (lambda model: setattr(model[1], "coef_", "wide"), "Ridge (step 'ridge'): its fitted attributes"),
    "mean": (lambda model: setattr(model[0], "mean_", np.ones(2)), "StandardScaler (step 'standardscaler'): its fit"),
    "width": (
        lambda model: setattr(model[0], "n_features_in_", "many"),
        "Pipeline: it does not behave like a fitted one (",
    ),
    "names": (
        lambda model: setattr(model[0], "feature_names_in_", 5),
        "Pipeline: it does not behave like a fitted one (",
    ),
    "no steps": (lambda model: model.steps.clear(), "Pipeline: "),
}


@pytest.mark.parametrize("damage", INCONSISTENT)
def test_fitted_attributes_that_do_not_fit_together(tmp_path: Path, damage: str) -> None:
    model = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
    spoil, words = INCONSISTENT[damage]
    spoil(model)
    skops.io.dump(model, tmp_path / "m.skops")
    assert sentence(tmp_path / "m.skops").startswith(f"Cannot export {words}")


def bomb(path: Path, megabytes: int, part: str = "0.npy", times: int = 1) -> None:
    """Write a .skops file that is small and unpacks to so much, in a part that is read so often."""
    skops.io.dump(Ridge().fit(X, y), path)
    with zipfile.ZipFile(path) as archive:
        schema = json.loads(archive.read("schema.json"))
    node = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy", "file": part}
    schema["content"]["content"]["coef_"] = {**node, "__id__": 1}
    for number in range(times - 1):
        schema["content"]["content"][f"more{number}_"] = {**node, "__id__": number + 2}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("schema.json", json.dumps(schema))
        with archive.open(part, "w", force_zip64=True) as target:
            for _ in range(megabytes):
                target.write(bytes(2**20))


def test_a_file_that_unpacks_to_more_than_is_read(tmp_path: Path) -> None:
    bomb(tmp_path / "m.skops", 20)
    assert (tmp_path / "m.skops").stat().st_size < 100_000
    begin = time.process_time()
    with pytest.raises(ExportError, match=r"m\.skops unpacks to 21 MB, and at most 10 are read; .* --largest-mb 21\.$"):
        load_estimator(tmp_path / "m.skops", largest_mb=10)
    assert time.process_time() - begin < 5
    with pytest.raises(ExportError, match="Cannot read"):
        load_estimator(tmp_path / "m.skops", largest_mb=30)


def test_a_part_that_is_read_often_counts_often(tmp_path: Path) -> None:
    bomb(tmp_path / "m.skops", 3, times=50)
    with pytest.raises(ExportError, match=r"m\.skops unpacks to 151 MB, and at most 100 are read"):
        load_estimator(tmp_path / "m.skops", largest_mb=100)


def test_an_archive_in_the_file_counts_as_what_it_unpacks_to(tmp_path: Path) -> None:
    model = SVR().fit(scipy.sparse.csr_matrix(X), y)
    model.support_vectors_ = scipy.sparse.csr_matrix(
        (np.zeros(10**6), np.zeros(10**6, np.int32), np.array([0, 10**6], np.int32)), shape=(1, 3)
    )
    skops.io.dump(model, tmp_path / "m.skops")
    assert (tmp_path / "m.skops").stat().st_size < 200_000
    with pytest.raises(ExportError, match=r"m\.skops unpacks to 12 MB, and at most 5 are read"):
        load_estimator(tmp_path / "m.skops", largest_mb=5)


def test_a_cycle_ends_the_command_with_a_sentence(tmp_path: Path) -> None:
    skops.io.dump(RandomForestRegressor(2, random_state=0).fit(X, y), tmp_path / "m.skops")
    rewrite(tmp_path / "m.skops", lambda nodes: nodes["right_child"].__setitem__(0, 0))
    command = [sys.executable, "-m", "triton_regressors", "export", "m.skops"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1, signal.strsignal(-done.returncode)
    assert done.stderr.startswith("Error: Cannot read m.skops: its Tree does not hold together: a node")
    assert len(done.stderr.splitlines()) == 1
