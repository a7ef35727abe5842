import pytest

from triton_regressors.advise.prices import price_of, shown, usd_per_million


@pytest.mark.parametrize(
    ("device", "instance"),
    [
        ("NVIDIA H200", "p5en.48xlarge / 8"),
        ("NVIDIA H100 80GB HBM3", "p5.4xlarge"),
        ("NVIDIA A10G", "g5.4xlarge"),
        ("NVIDIA L4", "g6.4xlarge"),
        ("Tesla T4", "g4dn.4xlarge"),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_a_gpu_is_known_by_its_own_name(device, instance):
    found = price_of(device)
    assert (found and found.instance) == instance


def test_a_million_rows_at_a_million_a_second_take_a_second():
    assert usd_per_million(3600.0, 1e6) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("usd", "expected"), [(7.912, "7.9"), (1234.0, "1234"), (0.0123, "0.012"), (3.21e-06, "0.0000032"), (0.0, "0")]
)
def test_amounts_show_two_digits(usd, expected):
    assert shown(usd) == expected
