"""Linear regression trained by our kernels ends at least squares; refusals of it and of the weighted sum."""

import math

import pytest
import torch
from sklearn.metrics import r2_score

from gallery.kernels.linear_regression import LinearRegression
from gallery.kernels.weighted_sum import weighted_sum, weighted_sum_backward


def test_training_ends_at_the_least_squares_solution(device: torch.device) -> None:
    torch.manual_seed(3)
    x = torch.randn(40, 3, device=device, dtype=torch.float64)
    y = x @ torch.tensor([1.5, -2.0, 0.5], device=device, dtype=torch.float64) + 4 + torch.randn(40, device=device)
    model = LinearRegression(3, torch.float64, device)
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=40, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=1e-15
    )

    def step() -> torch.Tensor:
        optimiser.zero_grad()
        loss = model.loss(x, y)
        loss.backward()
        return loss

    optimiser.step(step)
    ones = torch.ones(40, 1, device=device, dtype=torch.float64)
    solution = torch.linalg.lstsq(torch.cat([x, ones], dim=1), y[:, None]).solution[:, 0]
    found = torch.cat([model.weight, model.bias[None]]).detach()
    assert torch.allclose(found, solution, rtol=1e-7, atol=1e-7)
    assert torch.allclose(model(x), torch.cat([x, ones], dim=1) @ solution, rtol=1e-6, atol=1e-6)


def test_stochastic_descent_in_float32_nears_it_too(device: torch.device) -> None:
    torch.manual_seed(3)
    x = torch.randn(64, 2, device=device)
    y = x @ torch.tensor([2.0, -1.0], device=device) + 0.5
    model = LinearRegression(2, device=device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
    for first in [*range(0, 64, 16)] * 12:
        optimiser.zero_grad()
        model.loss(x[first : first + 16], y[first : first + 16]).backward()
        optimiser.step()
    assert torch.allclose(model.weight, torch.tensor([2.0, -1.0], device=device), atol=1e-3)
    assert abs(float(model.bias) - 0.5) < 1e-3


def test_r2_is_scikit_learns(device: torch.device) -> None:
    torch.manual_seed(3)
    x, y = torch.randn(30, 3, dtype=torch.float64, device=device), torch.randn(30, dtype=torch.float64, device=device)
    model = LinearRegression(3, torch.float64, device)
    torch.nn.init.normal_(model.weight)
    assert model.r2(x, y) == pytest.approx(r2_score(y.cpu(), model(x).detach().cpu()), rel=1e-12)
    assert model.r2(x, model(x).detach()) == 1
    assert math.isnan(model.r2(x, torch.ones_like(y)))


def test_one_row_of_one_column(device: torch.device) -> None:
    x, w = torch.tensor([[3.0]], device=device), torch.tensor([-2.0], device=device)
    assert torch.equal(weighted_sum(x, w), x[0] * w)
    dx, dw = weighted_sum_backward(w, x, w)
    assert torch.equal(dx, (w * w)[None])
    assert torch.equal(dw, w * x[0])
    assert float(LinearRegression(1, device=device).loss(x, w)) == 4


def test_leading_dimensions_count_rows(device: torch.device) -> None:
    """The answer and its gradients have the bits of a matrix of as many rows, for any strides."""
    x, w, dy = (torch.randn(size, device=device) for size in ((3, 1, 5, 40), 40, (3, 1, 5)))
    turned = x.movedim(2, 0).contiguous().movedim(0, 2)
    dx, dw = weighted_sum_backward(dy.view(15), x.view(15, 40), w)
    for given in (x, turned):
        assert torch.equal(weighted_sum(given, w), weighted_sum(x.view(15, 40), w).view(3, 1, 5))
        found = weighted_sum_backward(dy, given, w)
        assert torch.equal(found[0], dx.view(3, 1, 5, 40))
        assert torch.equal(found[1], dw)
    assert weighted_sum(x[0, 0, 0], w).shape == ()
    assert weighted_sum(x[:, :0], w).shape == (3, 0, 5)


def test_a_transposed_matrix_and_bits_that_do_not_change(device: torch.device) -> None:
    x, w, dy = (torch.randn(size, device=device) for size in ((900, 40), 40, 900))
    assert torch.equal(weighted_sum(x.T.contiguous().T, w), weighted_sum(x, w))
    first, second = (weighted_sum_backward(dy, x, w) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_refusals_name_the_argument(device: torch.device) -> None:
    x, w = torch.zeros(3, 4, device=device), torch.zeros(4, device=device)
    with pytest.raises(ValueError, match=r"'w' has shape \[3\]; \[4\] is needed"):
        weighted_sum(x, w[:3])
    with pytest.raises(ValueError, match="'x' has no dimension along which there could be a sum"):
        weighted_sum(w[0], w)
    with pytest.raises(ValueError, match=r"'dy' has shape \[2\]; \[3\] is needed"):
        weighted_sum_backward(w[:2], x, w)
    with pytest.raises(ValueError, match=r"'y' has shape \[4\]; \[3\] is needed"):
        LinearRegression(4, device=device).loss(x, w)
