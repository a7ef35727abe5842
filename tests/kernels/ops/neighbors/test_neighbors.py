"""Operations that look for neighbours: kernels against references, ties, hits, empty and large neighbourhoods."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels import operations_neighbors as ops
from tests.kernels.examples import examples
from tests.kernels.operations import inputs_for, run_kernel, run_reference, tensors
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.neighbors import launch, neighbor_imputer
from triton_regressors.kernels.ops.neighbors.barycenter import Barycenter
from triton_regressors.kernels.ops.neighbors.bounds import MOST_POINTS, bounded
from triton_regressors.kernels.ops.neighbors.distances import METRICS
from triton_regressors.kernels.ops.neighbors.min_plus import MinPlus
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph
from triton_regressors.kernels.ops.neighbors.neighbor_imputer import NeighborImputer
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.radius_neighbors import RadiusNeighbors
from triton_regressors.kernels.ops.neighbors.tree_neighbors import TreeNeighbors
from triton_regressors.kernels.plan.plan import Operation

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy

FLOAT64_NOISE = 1e-12

drawn = examples(8)
few = examples(3)
rows = st.integers(0, 40)
seeds = st.integers(0, 2**31)
weights = st.sampled_from(["uniform", "distance"])


def check(op: Operation, x: np.ndarray, device: torch.device) -> np.ndarray:
    """The kernel is within float64 noise of the reference, or half a unit in the last place; return the reference."""
    expected = run_reference(op, [x.astype(np.float64)])
    assert expected.dtype == np.float64
    single = x.astype(np.float32)
    for array, dtype, rounding in ((x.astype(np.float64), torch.float64, 0.0), (single, torch.float32, 2.0**-24)):
        want = expected if dtype == torch.float64 else run_reference(op, [single])
        found = run_kernel(op, [array], device, dtype).astype(np.float64)
        assert found.shape == want.shape
        unit = np.maximum(np.abs(np.nan_to_num(want, posinf=0.0)), 1.0)
        with np.errstate(invalid="ignore"):
            near = np.abs(found - want) <= unit * (FLOAT64_NOISE + rounding)
        assert (near | (found == want) | (np.isnan(found) & np.isnan(want))).all()
    return expected


def rows_among(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return rows of which every other one is a point."""
    (x,) = inputs_for([points.shape[1]], count, seed + 7)
    x[::2] = points[np.random.default_rng(seed).integers(0, len(points), len(x[::2]))]
    return x


@pytest.mark.parametrize("metric", METRICS)
@few
@given(
    features=st.integers(1, 5),
    points=st.integers(1, 50),
    k=st.integers(1, 9),
    outputs=st.integers(1, 3),
    p=st.sampled_from([0.5, 1.0, 2.5, 3.0]),
    weighted=st.booleans(),
    weights=weights,
    rows=rows,
    seed=seeds,
)
def test_neighbors(
    device: torch.device,
    metric: str,
    features: int,
    points: int,
    k: int,
    outputs: int,
    p: float,
    weighted: bool,
    weights: str,
    rows: int,
    seed: int,
) -> None:
    features = 2 if metric == "haversine" else features
    op = ops.neighbors(features, points, min(k, points), outputs, weighted, seed, metric=metric, p=p, weights=weights)
    x = rows_among(op.points, rows, seed)
    check(op, x.round() if metric in ops.COUNTING else x, device)


@pytest.mark.parametrize(("points", "k"), [(70, 33), (2100, 5), (300, 257)])
def test_many_points_and_neighbors(device: torch.device, points: int, k: int) -> None:
    op = ops.neighbors(2, points, k, weights="distance")
    x = rows_among(op.points, 3, 0)
    found = check(op, x, device)
    distance = np.linalg.norm(x[1] - op.points, axis=1)
    nearest = np.argsort(distance, kind="stable")[:k]
    assert found[1, 0] == pytest.approx(np.average(op.targets[nearest, 0], weights=1 / distance[nearest]), rel=1e-9)


def scattered(points: int, features: int, seed: int, spread: float, center: float, clusters: int) -> np.ndarray:
    """Return points that lie `spread` around a number of places, `center` away from zero, some of them twice."""
    rng = np.random.default_rng(seed)
    places = center + rng.standard_normal((clusters, features))
    found = places[rng.integers(0, clusters, points)] + spread * rng.standard_normal((points, features))
    found[rng.integers(0, points, points // 8)] = found[0]
    return found


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev", "minkowski"])
@few
@given(
    features=st.sampled_from([1, 3, 17]),
    k=st.sampled_from([1, 6]),
    spread=st.sampled_from([1e-9, 1e-3, 1.0, 1e30]),
    center=st.sampled_from([0.0, 1e4, -1e-20]),
    clusters=st.sampled_from([1, 40]),
    of_parts=st.booleans(),
    seed=seeds,
)
def test_bounds_leave_no_neighbor_out(
    device: torch.device,
    metric: str,
    features: int,
    k: int,
    spread: float,
    center: float,
    clusters: int,
    of_parts: bool,
    seed: int,
) -> None:
    points = 1024 if device.type == "cpu" else 8300
    places = scattered(points, features, seed, spread, center, clusters)
    targets = np.random.default_rng(seed).standard_normal((points, 1))
    op = Neighbors(places, targets, ops.drawn_factor(features, seed % 2 > 0, seed), k, metric, 3.0)
    assert bounded(op.points, k, op.factor, metric, op.p)
    x = scattered(3, features, seed + 1, spread, center, clusters)
    x[0] = places[-1] * (1 + 2.0**-40)
    x[1] *= 2 if center else 1e3  # no further: there all distances would differ by rounding alone
    with by_bounds(of_parts):
        np.testing.assert_allclose(run_kernel(op, [x], device, torch.float64), run_reference(op, [x]), rtol=1e-12)


@contextmanager
def by_bounds(of_parts: bool) -> Iterator[None]:
    """Search by bounds for few rows too, of parts of tiles or of groups, within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "LISTED", dict.fromkeys(launch.LISTED, 0))
        if not of_parts:
            patch.setattr(launch, "PARTED_ROWS", 0)
        yield


@pytest.mark.parametrize("of_parts", [True, False])
def test_rows_that_bounds_cannot_hold(device: torch.device, of_parts: bool) -> None:
    op = ops.neighbors(1, 1024, 2)
    with by_bounds(of_parts):
        check(op, np.array([[np.nan], [1e300], [-3e7]]), device)


def test_which_searches_are_bounded() -> None:
    points = np.zeros((6, 2))
    assert bounded(points, 5)
    wide = np.broadcast_to(0.0, (MOST_POINTS + 1, 1))
    for wrong in ({"n_neighbors": 65}, {"metric": "cosine"}, {"metric": "minkowski", "p": 0.5}, {"points": wide}):
        assert not bounded(**{"points": points, "n_neighbors": 5, **wrong})
    assert [ops.radius_in_groups(radius).launches(1) for radius in (0.031, 1.0)] == [4, 2]


@pytest.mark.parametrize("name", ops.IN_GROUPS)
def test_row_bits_of_searches_in_groups_do_not_depend_on_the_batch(device: torch.device, name: str) -> None:
    op, widths = ops.IN_GROUPS[name]
    (x,) = inputs_for(list(widths), 5 if device.type == "cpu" else 3000, 3)
    check(op, x[:5], device)
    whole = run_kernel(op, [x], device)
    for part in (x[:1], x[1:2], x[3:], x[::2]):
        where = [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in part[:3]]
        np.testing.assert_array_equal(run_kernel(op, [part], device)[:3], whole[where])


@pytest.mark.parametrize("name", ["neighbors in groups", "neighbors in groups cubed", "neighbor_graph in groups"])
def test_small_and_large_batches_are_searched_alike(
    device: torch.device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program looks at several groups together for few rows, at one group for many."""
    op, widths = ops.IN_GROUPS[name]
    x = inputs_for(list(widths), 2, 5)
    with by_bounds(of_parts=False):
        small = run_kernel(op, x, device)
        monkeypatch.setattr(launch, "FEW_ROWS", 0)
        np.testing.assert_array_equal(run_kernel(op, x, device), small)


@pytest.mark.parametrize(("outputs", "weights"), [(1, "uniform"), (3, "distance")])
def test_row_bits_of_large_neighborhoods_do_not_depend_on_the_batch(
    device: torch.device, outputs: int, weights: str
) -> None:
    op = ops.radius_neighbors(2, 300, 1.0, outputs, weights=weights)
    x = rows_among(op.points, 34, 2)
    whole = run_kernel(op, [x], device)
    for rows in (slice(0, 1), slice(1, 4), slice(2, 34)):
        np.testing.assert_array_equal(run_kernel(op, [x[rows]], device), whole[rows])


def test_row_bits_of_imputed_rows_do_not_depend_on_the_batch(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = ops.neighbor_imputer(4, 100, 3, "distance")
    (x,) = inputs_for([4], 20, 2)
    x[::2][np.random.default_rng(1).random((10, 4)) < 0.4] = np.nan
    whole = run_kernel(op, [x], device)
    for rows in (slice(0, 1), slice(2, 5), slice(3, 20)):
        np.testing.assert_array_equal(run_kernel(op, [x[rows]], device), whole[rows])
    monkeypatch.setattr(neighbor_imputer, "DISTANCES_AT_ONCE", 1)
    np.testing.assert_array_equal(run_kernel(op, [x], device), whole)


def test_nearest_of_equals_is_the_first_and_hits_alone_count(device: torch.device) -> None:
    points = np.array([[2.0], [1.0], [-1.0], [0.5], [1.0], [-1.0]])
    targets = 10.0 ** np.arange(6)[:, None]
    x = np.array([[0.0], [1.0], [-1.0], [9.0]])
    one, three = (Neighbors(points, targets, np.ones(1), k, weights="uniform") for k in (1, 3))
    assert check(one, x, device)[:, 0].tolist() == [1000.0, 10.0, 100.0, 1.0]
    assert check(three, x, device)[0, 0] == (1000.0 + 10.0 + 100.0) / 3
    hits = check(dataclasses.replace(three, weights="distance"), x, device)[:3, 0]
    assert hits[1:].tolist() == [(10.0 + 10000.0) / 2, (100.0 + 100000.0) / 2]
    assert hits[0] == pytest.approx((2 * 1000.0 + 10.0 + 100.0) / 4)


def test_rows_without_distances_answer_nan(device: torch.device) -> None:
    x = np.array([[np.nan, 1.0], [np.nan, np.nan], [0.0, 0.0]])
    for metric in METRICS:
        answers = check(ops.neighbors(2, 9, 3, metric=metric, weights="distance"), x, device)[:, 0]
        assert np.isnan(answers[1])
        assert np.isnan(answers[0]) == (metric != "nan_euclidean")
        assert np.isfinite(answers[2]) or metric in ("dice", "sokalsneath")  # two rows of zeros have no distance
    lenient = ops.neighbors(2, 9, 3, metric="nan_euclidean")
    assert check(lenient, x, device)[1, 0] == pytest.approx(lenient.targets[:3].mean())


@drawn
@given(
    metric=st.sampled_from(METRICS),
    features=st.integers(1, 5),
    points=st.integers(1, 90),
    radius=st.floats(0, 3),
    outputs=st.integers(1, 18),
    weighted=st.booleans(),
    weights=weights,
    rows=rows,
    seed=seeds,
)
def test_radius_neighbors(
    device: torch.device,
    metric: str,
    features: int,
    points: int,
    radius: float,
    outputs: int,
    weighted: bool,
    weights: str,
    rows: int,
    seed: int,
) -> None:
    features = 2 if metric == "haversine" else features
    op = ops.radius_neighbors(features, points, radius, outputs, weighted, seed, metric=metric, p=1.5, weights=weights)
    check(op, rows_among(op.points, rows, seed), device)


def test_points_at_the_radius_count_and_without_any_the_answer_is_empty(device: torch.device) -> None:
    points, targets = np.array([[3.0, 4.0], [0.3, 0.4], [-6.0, 8.0]]), np.array([[1.0], [10.0], [100.0]])
    x = np.array([[0.0, 0.0], [50.0, 0.0], [3.0, 4.0]])
    op = RadiusNeighbors(points, targets, np.ones(2), np.array([-3.0]), 5.0)
    assert check(op, x, device)[:, 0].tolist() == [5.5, -3.0, 5.5]
    assert check(dataclasses.replace(op, weights="distance"), x, device)[2, 0] == 1.0
    tenths = RadiusNeighbors(np.array([[0.1], [0.1000001]]), targets[:2], np.ones(1), np.array([np.nan]), 0.1)
    assert check(tenths, np.array([[0.0]]), device)[0, 0] == 1.0  # 0.1 in float32 is more than 0.1
    assert np.isnan(check(tenths, np.array([[-1.0]]), device)[0, 0])


@drawn
@given(
    features=st.integers(1, 4),
    points=st.integers(1, 90),
    k=st.integers(0, 6),
    mode=st.sampled_from(["distance", "connectivity"]),
    absent=st.sampled_from(["zero", "infinity"]),
    weighted=st.booleans(),
    rows=rows,
    seed=seeds,
)
def test_neighbor_graph(
    device: torch.device,
    features: int,
    points: int,
    k: int,
    mode: str,
    absent: str,
    weighted: bool,
    rows: int,
    seed: int,
) -> None:
    options = {"n_neighbors": min(k, points), "radius": 1.0, "mode": mode, "absent": absent}
    op = ops.neighbor_graph(features, points, weighted, seed, **options)
    found = check(op, rows_among(op.points, rows, seed), device)
    if k and absent == "infinity":
        assert (np.isfinite(found).sum(axis=1) == min(k, points)).all()


@pytest.mark.parametrize("p", [1, 3, 8, 9, 12, 15])
def test_points_just_a_radius_away_are_neighbours_for_every_whole_power(device: torch.device, p: int) -> None:
    """The p-th powers of these whole numbers are float64 numbers, so no distance may be off."""
    points, distance = np.arange(11.0)[:, None], np.arange(1, 11)
    for radius in distance.astype(float):
        options = {"radius": radius, "metric": "minkowski", "p": float(p), "mode": "connectivity"}
        op = NeighborGraph(points, np.ones(1), **options)
        assert run_reference(op, [np.zeros((1, 1))])[0, 1:].tolist() == (distance <= radius).tolist()
        assert run_kernel(op, [np.zeros((1, 1))], device)[0, 1:].tolist() == (distance <= radius).tolist()


@drawn
@given(inner=st.integers(1, 40), width=st.integers(1, 90), rows=rows, seed=seeds)
def test_min_plus(device: torch.device, inner: int, width: int, rows: int, seed: int) -> None:
    op = ops.min_plus(inner, width, seed)
    (x,) = inputs_for([inner], rows, seed)
    x[np.random.default_rng(seed).random(x.shape) < 0.7] = np.inf
    expected = (x.astype(np.float64)[:, :, None] + op.lengths).min(axis=1)
    assert np.array_equal(check(op, x, device), expected)


@drawn
@given(
    features=st.integers(1, 6),
    points=st.integers(1, 60),
    k=st.integers(1, 12),
    outputs=st.integers(1, 3),
    rows=rows,
    seed=seeds,
)
def test_barycenter(
    device: torch.device, features: int, points: int, k: int, outputs: int, rows: int, seed: int
) -> None:
    op = ops.barycenter(features, points, min(k, points), outputs, seed)
    found = run_reference(op, inputs_for([features], rows, seed))
    kernel = run_kernel(op, [a.astype(np.float64) for a in inputs_for([features], rows, seed)], device, torch.float64)
    assert np.allclose(kernel, found, rtol=1e-9, atol=1e-9)  # the system's condition is about 1,000 a neighbour


@pytest.mark.parametrize("k", [33, 70])
def test_barycenter_of_many_neighbors(device: torch.device, k: int) -> None:
    op, x = ops.barycenter(3, 90, k), inputs_for([3], 2)
    assert np.allclose(run_kernel(op, x, device, torch.float64), run_reference(op, x), rtol=1e-9, atol=1e-9)


def test_barycenter_between_equal_points_is_their_mean(device: torch.device) -> None:
    op = Barycenter(np.ones((3, 2)), np.array([[1.0], [2.0], [30.0]]), 3, 1e-3)
    assert check(op, np.ones((2, 2)), device)[:, 0] == pytest.approx([11.0, 11.0])


@drawn
@given(
    features=st.integers(1, 5), points=st.integers(1, 60), k=st.integers(1, 9), weights=weights, rows=rows, seed=seeds
)
def test_neighbor_imputer(
    device: torch.device, features: int, points: int, k: int, weights: str, rows: int, seed: int
) -> None:
    op = ops.neighbor_imputer(features, points, min(k, points), weights, seed)
    x = rows_among(np.nan_to_num(op.points), rows, seed)
    x[np.random.default_rng(seed).random(x.shape) < 0.4] = np.nan
    assert np.isfinite(check(op, x, device)).all()


@pytest.mark.parametrize("name", [name for name, (op, _) in ops.OPERATIONS.items() if isinstance(op, TreeNeighbors)])
def test_tree_searches_have_tied_rows(name: str) -> None:
    """Their batches are answered by both kernels, except by hamming, where no row has an untied distance."""
    op, widths = ops.OPERATIONS[name]
    parameters = tensors(op, torch.device("cpu"), plain=True)
    (x,) = inputs_for(widths, 40)
    distance = op.search.reference(torch.from_numpy(x).double(), parameters)[0].sort(1).values
    tied = distance[:, -1] == distance[:, -2]
    assert tied.any()
    assert tied.all() == (op.metric == "hamming")


@pytest.mark.parametrize("name", [name for name in ops.OPERATIONS if name.split()[-1] not in METRICS])
def test_no_rows(name: str) -> None:
    op, widths = ops.OPERATIONS[name]
    assert run_reference(op, inputs_for(widths, 0)).shape == (0, op.output_width(*widths))


Z, W = np.zeros, np.ones
SEVEN = (Z((7, 3)), Z((7, 1)), W(3))
WRONG: dict[str, tuple[Operation, int, str]] = {
    "metric": (Neighbors(*SEVEN, 2, "yule"), 3, "neighbors: there is no metric 'yule'; the metrics are euclidean, "),
    "points": (Neighbors(*SEVEN, 2), 4, "neighbors: points must be [points, 4] with at least one, not [7, 3]."),
    "no points": (Neighbors(Z((0, 3)), Z((0, 1)), W(3), 2), 3, "with at least one, not [0, 3]."),
    "factor": (Neighbors(Z((7, 3)), Z((7, 1)), W(2), 2), 3, "neighbors: factor must be [3], not [2]."),
    "p": (Neighbors(*SEVEN, 2, "minkowski", 0.0), 3, "neighbors: p must be positive, not 0.0."),
    "haversine": (Neighbors(*SEVEN, 2, "haversine"), 3, "haversine is the distance of 2 features, not 3."),
    "too many": (Neighbors(*SEVEN, 8), 3, "neighbors: n_neighbors must lie in [1, 7], not 8."),
    "far too many": (
        Neighbors(Z((5000, 1)), Z((5000, 1)), W(1), 4097),
        1,
        "neighbors: n_neighbors must lie in [1, 4096], not 4097.",
    ),
    "targets": (Neighbors(Z((7, 3)), Z((6, 1)), W(3), 2), 3, "neighbors: targets must be [7, outputs], not [6, 1]."),
    "weights": (Neighbors(*SEVEN, 2, weights="mine"), 3, "weights must be one of ('uniform', 'distance'), not 'mine'."),
    "empty": (RadiusNeighbors(*SEVEN, W(2), 1.0), 3, "radius_neighbors: empty must be [1], not [2]."),
    "radius": (RadiusNeighbors(*SEVEN, W(1), -1.0), 3, "radius_neighbors: radius must be 0 or more, not -1.0."),
    "graph radius": (
        NeighborGraph(Z((7, 3)), W(3), radius=-1.0),
        3,
        "neighbor_graph: radius must be 0 or more, not -1.0.",
    ),
    "graph neighbors": (NeighborGraph(Z((7, 3)), W(3), 8), 3, "neighbor_graph: n_neighbors must lie in [1, 7], not 8."),
    "mode": (NeighborGraph(Z((7, 3)), W(3), 1, mode="edges"), 3, "('zero', 'infinity'), not 'edges' and 'zero'."),
    "lengths": (MinPlus(Z((2, 3))), 3, "min_plus: lengths must be [3, width], not [2, 3]."),
    "infinite lengths": (MinPlus(np.full((3, 3), np.inf)), 3, "min_plus: lengths must be finite."),
    "embedding": (Barycenter(Z((7, 3)), Z((6, 2)), 2, 0.1), 3, "embedding must be [7, outputs], not [6, 2]."),
    "reg": (Barycenter(Z((7, 3)), Z((7, 2)), 2, -0.1), 3, "barycenter: reg must be 0 or more, not -0.1."),
    "barycenter of too many": (Barycenter(Z((200, 3)), Z((200, 2)), 129, 0.1), 3, "must lie in [1, 128], not 129."),
    "means": (NeighborImputer(Z((7, 3)), W(2), np.arange(3), 2), 3, "neighbor_imputer: means must be [3], not [2]."),
    "columns": (NeighborImputer(Z((7, 3)), W(3), np.array([3]), 2), 3, "at least one and lie in [0, 3)."),
    "imputer weights": (NeighborImputer(Z((7, 3)), W(3), np.arange(3), 2, "mine"), 3, "weights must be one of"),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    op, width, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        op.check(width)
    assert message in str(raised.value)
