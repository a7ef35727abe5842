"""All layers of a neural network in one launch, in float64 and as float16 products."""

import sys

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_dense import dense_layers
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.networks import dense_layers as dense_layers_module
from triton_regressors.kernels.ops.networks import int8_fused, int8_layerwise
from triton_regressors.kernels.ops.networks.dense_layers import ACTIVATIONS, DenseLayers
from triton_regressors.kernels.plan.devices import has_warp_groups

SHAPES = ((1, 1, 1), (5, 9, 2), (40, 70, 20, 3), (33, 16, 64, 65, 1), (17, 130, 5))


def in_layers(op: DenseLayers, x: np.ndarray) -> np.ndarray:
    """Return the answers in float64, layer by layer."""
    *hidden, (weight, intercept) = op.layers()
    functions = {"identity": np.positive, "relu": lambda z: np.maximum(z, 0), "tanh": np.tanh}
    functions["expit"] = lambda z: 1 / (1 + np.exp(-z))
    h = x.astype(np.float64)
    for w, b in hidden:
        h = functions[op.activation](h @ w + b)
    answer: np.ndarray = h @ weight + intercept
    return answer


@pytest.mark.parametrize(
    ("widths", "activation"), [*((widths, "relu") for widths in SHAPES), (SHAPES[2], "tanh")], ids=str
)
def test_float64_is_as_exact_as_float64(device: torch.device, widths: tuple[int, ...], activation: str) -> None:
    op = dense_layers(*widths, activation=activation)
    (x,) = inputs_for([widths[0]], 70)
    expected = in_layers(op, x)
    np.testing.assert_allclose(run_reference(op, [x]), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(run_on_cpu(op, [x]), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(run_kernel(op, [x], device, torch.float64), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(op.emulate(x), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("widths", "activation"),
    [*((widths, "relu") for widths in SHAPES), *((SHAPES[2], name) for name in ("tanh", "expit", "identity"))],
    ids=str,
)
def test_float16_products_are_as_exact_as_float32(
    device: torch.device, widths: tuple[int, ...], activation: str
) -> None:
    op = dense_layers(*widths, activation=activation, precision="float16")
    (x,) = inputs_for([widths[0]], 70)
    expected, unit = in_layers(op, x), in_layers(op, x).std(axis=0) + 0.1
    np.testing.assert_allclose(run_reference(op, [x]), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(run_on_cpu(op, [x]), expected, rtol=1e-13, atol=1e-13)
    for found in (run_kernel(op, [x], device, torch.float64), op.emulate(x)):
        assert (np.abs(found - expected) <= 3e-6 * unit).all()


@pytest.mark.parametrize(
    ("widths", "activation"),
    [*((widths, "relu") for widths in SHAPES), *((SHAPES[2], name) for name in ("tanh", "expit", "identity"))],
    ids=str,
)
def test_digits_are_more_exact_than_float32(device: torch.device, widths: tuple[int, ...], activation: str) -> None:
    op = dense_layers(*widths, activation=activation, precision="int8").on_device(device)
    (x,) = inputs_for([widths[0]], 70)
    expected, unit = in_layers(op, x), in_layers(op, x).std(axis=0) + 0.1
    np.testing.assert_allclose(run_reference(op, [x]), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(run_on_cpu(op, [x]), expected, rtol=1e-13, atol=1e-13)
    found, emulated = run_kernel(op, [x], device, torch.float64), op.emulate(x)
    assert (np.abs(found - expected) <= 1e-7 * unit).all()
    assert (np.abs(found - emulated) <= 1e-9 * unit).all()


@pytest.mark.parametrize("activation", ["relu", "identity"])
def test_digits_are_emulated_to_the_bit(device: torch.device, activation: str) -> None:
    op = dense_layers(40, 70, 20, 3, activation=activation, precision="int8", shift=3.0)
    (x,) = inputs_for([40], 70)
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), op.emulate(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_rows_digits_do_not_depend_on_its_batch(
    device: torch.device, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not depend either on the rows and units of a program, or on whether it keeps the weights."""
    op = dense_layers(40, 70, 20, 3, activation=activation, precision="int8")
    (x,) = inputs_for([40], 70)
    many = run_kernel(op, [x], device, torch.float64)
    assert np.array_equal(run_kernel(op, [x[5:24]], device, torch.float64), many[5:24])
    monkeypatch.setattr(int8_fused, "resident_shape", lambda *_: {"BLOCK_ROWS": 32, "num_warps": 4})
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), many)
    monkeypatch.setattr(int8_fused, "resident", lambda *_: False)
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), many)
    monkeypatch.setattr(int8_fused, "digit_shape", lambda *_: {"BLOCK_ROWS": 32, "BLOCK_UNITS": 32, "num_warps": 2})
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), many)


@pytest.mark.parametrize(
    ("widths", "activation"), [((9, 150, 3), "expit"), ((33, 40, 200, 130, 2), "relu"), ((130, 20, 129, 1), "identity")]
)
def test_wide_layers_of_few_rows_have_the_bits_of_many(
    device: torch.device, widths: tuple[int, ...], activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows take a launch for each layer, whose units programs share."""
    op = dense_layers(*widths, activation=activation, precision="int8", shift=2.0)
    (x,) = inputs_for([widths[0]], 37)
    x[5, 1] = np.nan
    launched = []
    each = int8_fused.launch_each_layer
    monkeypatch.setattr(int8_fused, "launch_each_layer", lambda *given: (launched.append(1), each(*given)))
    few = run_kernel(op, [x], device, torch.float64)
    monkeypatch.setattr(int8_layerwise, "HALF_UNITS_ROWS", 0)
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), few, equal_nan=True)
    monkeypatch.setattr(int8_fused, "FEW_ROWS", 0)
    many = run_kernel(op, [x], device, torch.float64)
    assert len(launched) == 2
    assert np.isnan(few[5]).all()
    assert np.array_equal(few, many, equal_nan=True)
    known = np.delete(np.arange(37), 5)
    np.testing.assert_allclose(few[known], op.emulate(x[known]), rtol=1e-9, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize("widths", [(40, 70, 20, 3), (9, 20, 150, 33), (33, 40, 200, 130, 2), (64, 256, 256, 256, 4)])
@pytest.mark.parametrize("rows", [1, 63, 4096, 70_001])
def test_hopper_layers_have_the_bits_of_plain_ones(
    widths: tuple[int, ...], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any number of rows, network, magnitude of rows, and type of answers."""
    device, launched = torch.device("cuda"), []
    if not has_warp_groups(device):
        pytest.skip("needs a GPU of compute capability 9.0 and a version of the Triton language seen there")
    from triton_regressors.kernels.ops.networks import int8_hopper  # imports Gluon

    launch = int8_hopper.launch_hopper_layers
    monkeypatch.setattr(int8_hopper, "launch_hopper_layers", lambda *given: (launched.append(1), launch(*given)))
    monkeypatch.setattr(int8_fused, "FEW_ROWS", 0)
    rng = np.random.default_rng(rows)
    for draw, dtype in enumerate((torch.float32, torch.float64, torch.float32)):
        op = dense_layers(*widths, precision="int8", shift=float(draw), function="exp" if draw == 1 else "identity")
        op.weights[:] = rng.normal(size=op.weights.shape) / 8
        x = (rng.normal(size=(rows, widths[0])) * 10.0 ** (2 * draw - 2)).astype(np.float32)
        x[rows // 2, 0] = np.nan if draw else 1.0
        monkeypatch.setattr(int8_fused, "takes_warp_groups", lambda *_: True)
        found = run_kernel(op, [x], device, dtype)
        monkeypatch.setattr(int8_fused, "takes_warp_groups", lambda *_: False)
        plain = run_kernel(op, [x], device, dtype)
        assert np.array_equal(np.isnan(found), np.isnan(plain))
        assert np.nan_to_num(found).tobytes() == np.nan_to_num(plain).tobytes()
    assert len(launched) == 3


def test_which_networks_take_the_hopper_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks take it that were measured to be faster with it."""
    monkeypatch.setattr(int8_fused, "has_warp_groups", lambda _: True)
    many, wide, device = int8_fused.MANY_ROWS, (64, 256, 256, 4), torch.device("cuda")
    assert int8_fused.takes_warp_groups(many, wide, "relu", device)
    for rows, widths, activation in (
        (many - 1, wide, "relu"),
        (many, wide, "tanh"),
        (many, (65, 256, 256, 4), "relu"),
        (many, (64, 256, 4), "relu"),
        (many, (64, 128, 128, 4), "relu"),
    ):
        assert not int8_fused.takes_warp_groups(rows, widths, activation, device)
    monkeypatch.setattr(int8_fused, "has_warp_groups", lambda _: False)
    assert not int8_fused.takes_warp_groups(many, wide, "relu", device)


def test_layers_are_computed_without_gluon(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module that an entry loads imports the one that needs Gluon, and plain kernels answer any number of rows."""
    monkeypatch.setitem(sys.modules, "triton_regressors.kernels.ops.networks.int8_hopper", None)
    monkeypatch.setattr(int8_fused, "has_warp_groups", lambda _: False)
    op = dense_layers(9, 150, 150, 3, precision="int8")
    (x,) = inputs_for([9], 10)
    few = run_kernel(op, [x], device, torch.float64)
    monkeypatch.setattr(int8_fused, "FEW_ROWS", 0)
    monkeypatch.setattr(int8_fused, "MANY_ROWS", 1)
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), few)
    monkeypatch.setattr(int8_fused, "has_warp_groups", lambda _: True)
    with pytest.raises(ImportError, match="int8_hopper"):
        run_kernel(op, [x], device, torch.float64)


def test_rows_with_a_number_that_is_none_have_no_answer(device: torch.device) -> None:
    op = dense_layers(6, 20, 2, precision="int8")
    (x,) = inputs_for([6], 20)
    wild = x.copy()
    wild[3, 1], wild[7, 0] = np.nan, np.inf
    found = run_kernel(op, [wild], device)
    assert np.isnan(found[[3, 7]]).all()
    others = np.delete(np.arange(20), [3, 7])
    assert np.array_equal(found[others], run_kernel(op, [x], device)[others])


def test_features_and_units_of_unlike_magnitudes(device: torch.device) -> None:
    op = dense_layers(6, 20, 30, 2, precision="int8")
    (x,) = inputs_for([6], 40)
    expected = in_layers(op, x)
    magnitude = np.float32(10.0) ** np.arange(-6, 6, 2, dtype=np.float32)
    (first, _), (second, _), _ = op.layers()
    first /= magnitude[:, None].astype(np.float64)
    for unit, factor in enumerate((1e-6, 1e6)):
        first[:, unit] *= factor
        op.intercepts[unit] *= factor
        second[unit] /= factor
    for found in (run_kernel(op, [x * magnitude], device, torch.float64), op.emulate(x * magnitude)):
        assert np.abs(found - in_layers(op, x * magnitude)).max() <= 1e-7 * expected.std()


def test_a_gpu_holds_the_tables_of_one_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is float64 if the Triton language multiplies no int8 there."""
    op = dense_layers(5, 9, 2, precision="int8")
    here = torch.device("cpu")
    assert op.on_device(here) is op
    assert "weight0" not in op.parameters()
    assert op.launches(1) == 1
    monkeypatch.setattr(dense_layers_module, "has_matrix_units", lambda _: False)
    found = op.on_device(here)
    assert (found.precision, found.launches(1)) == ("float64", 2)
    assert sorted(found.parameters()) == ["intercept0", "intercept1", "weight0", "weight1"]
    half = dense_layers(5, 9, 2, precision="float16")
    assert half.on_device(here) is half


def test_wide_layers_have_no_digits() -> None:
    assert "int8" in dense_layers(256, 256, 1).precisions()
    assert "int8" not in dense_layers(4, 257, 1).precisions()


def test_the_emulation_rounds_about_as_the_kernel_does(device: torch.device) -> None:
    op = dense_layers(40, 128, 128, 1, precision="float16")
    (x,) = inputs_for([40], 200)
    expected = in_layers(op, x)
    kernel, emulated = (
        np.sqrt(np.mean((found - expected) ** 2)) / expected.std()
        for found in (run_kernel(op, [x], device, torch.float64), op.emulate(x))
    )
    assert emulated / 3 <= kernel <= 2 * emulated


@pytest.mark.parametrize("precision", DenseLayers.PRECISIONS)
def test_features_far_from_zero(device: torch.device, precision: str) -> None:
    op = dense_layers(6, 20, 1, precision=precision, shift=10_000.0)
    (near,) = inputs_for([6], 40)
    x = (10_000 + near).astype(np.float32)
    expected = in_layers(op, x)
    for found in (run_kernel(op, [x], device, torch.float64), op.emulate(x)):
        assert np.abs(found - expected).max() <= 3e-6 * expected.std()


@pytest.mark.parametrize("precision", ["int8", "float16"])
@pytest.mark.parametrize("factor", [1e-30, 1e-9, 1e9, 1e30])
def test_rows_of_any_magnitude(device: torch.device, factor: float, precision: str) -> None:
    """float16 ends at 65,504; a row of numbers beyond is brought nearer, whatever rows come with it."""
    op = dense_layers(6, 40, 40, 1, precision=precision, activation="identity")
    (x,) = inputs_for([6], 20)
    x[::2] *= np.float32(factor)
    expected = in_layers(op, x)
    for found in (run_kernel(op, [x], device, torch.float64), op.emulate(x)):
        assert (np.abs(found - expected) <= 3e-6 * np.maximum(np.abs(x).max(axis=1, keepdims=True), 1)).all()


@pytest.mark.parametrize("precision", DenseLayers.PRECISIONS)
def test_features_without_weight_are_not_looked_at(device: torch.device, precision: str) -> None:
    op = dense_layers(8, 20, 2, precision=precision, shift=0.5)
    weight, _ = next(op.layers())
    weight[1::2] = 0
    (x,) = inputs_for([8], 20)
    wild = x.copy()
    wild[:, 1::2] = np.nan
    wild[3, 1] = np.inf
    assert np.array_equal(run_reference(op, [wild]), run_reference(op, [x]))
    assert np.array_equal(run_on_cpu(op, [wild]), run_on_cpu(op, [x]))
    assert np.array_equal(run_kernel(op, [wild], device), run_kernel(op, [x], device))
    assert np.array_equal(op.emulate(wild), op.emulate(x))


@pytest.mark.parametrize("precision", DenseLayers.PRECISIONS)
def test_float64_rows(device: torch.device, precision: str) -> None:
    op = dense_layers(5, 20, 20, 1, precision=precision, function="exp")
    x = inputs_for([5], 30)[0].astype(np.float64) / 3
    np.testing.assert_allclose(run_kernel(op, [x], device, torch.float64), np.exp(in_layers(op, x)), rtol=1e-5)


WRONG = {
    "one layer": (dense_layers(3, 1), (3,), "dense_layers: widths must be 3 and at least two more, not [3, 1]."),
    "features": (dense_layers(3, 4, 1), (4,), "dense_layers: widths must be 4 and at least two more, not [3, 4, 1]."),
    "weights": (
        DenseLayers(np.ones(5), np.ones(5), np.zeros(3), (3, 4, 1), "relu"),
        (3,),
        "dense_layers: weights must be [16], not [5].",
    ),
    "activation": (
        DenseLayers(np.ones(16), np.ones(5), np.zeros(3), (3, 4, 1), "log"),
        (3,),
        "dense_layers: activation must be one of ('identity', 'relu', 'tanh', 'expit'), not 'log'.",
    ),
    "precision": (
        dense_layers(3, 4, 1, precision="half"),
        (3,),
        f"dense_layers: precision must be one of {DenseLayers.PRECISIONS}, not 'half'.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    op, widths, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        op.check(*widths)
    assert message in str(raised.value)
