"""Tests of the advice of `describe --advise`, from made-up times."""

import pytest

from triton_regressors.advise.advice import Advice, Machine, limit_of, rate_of
from triton_regressors.advise.measured_models import Measured, Shape

SIZES = (1, 64, 1024, 16384, 65536)
FILE, ENTRY = ("svr.skops", 2_500_000), (None, 900)
LIKE = Measured(
    "NVIDIA H200",
    16,
    "SVR, 2,000 points × 32",
    Shape("pairwise_affine", 66_000, 32),
    {
        "triton": dict(zip(SIZES, (20, 20, 30, 200, 700), strict=True)),
        "scikit-learn": {1: 100.0, 64: 2000.0},
        "onnxruntime": {1: 15.0, 64: 300.0},
    },
)


def times(*values):
    return dict(zip(SIZES, map(float, values), strict=False))


def advice(here, *, gpu="NVIDIA H200", subject=FILE, like=LIKE, cores=16, **prices):
    return Advice(*subject, Machine(gpu, cores, **prices), here, like)


def sentences(text):
    """Return the advice of each heading, as one line."""
    block = text.split("\nAdvice\n")[1].split("\n\n")[0]
    found, heading = {}, None
    for line in block.splitlines():
        heading = line[2:11].strip() or heading
        found[heading] = f"{found.get(heading, '')} {line[13:]}".strip()
    return found


def test_a_gpu_that_is_always_faster_is_used_for_everything():
    here = {"triton": times(12, 14, 30, 250, 900), "torch": times(400, 5000, 60000), "scikit-learn": times(300, 4000)}
    found = advice(here)
    text = found.text(80)
    said = sentences(text)
    assert found.worth_from() == 1
    assert said["Engine"] == (
        "triton, on the GPU: faster at every batch size, 4,267 times at 65,536 rows."  # torch at its last rate
    )
    assert said["Instances"].startswith("1: ")
    assert "the weights (2 MB)" in said["Instances"]
    assert said["Batches"].startswith("up to 16,384 rows: 65,536,000 rows/s in 250 µs a batch, 90% of the best rate")
    assert text.endswith(
        "export svr.skops \\\n        --max-batch-size 16384 --instances 1".replace("        ", " " * 8)
    )
    assert "Measured on another" not in text


def test_a_gpu_that_pays_by_batches_says_from_where_and_what_the_server_takes():
    here = {"triton": times(12, 14, 30, 250, 900), "torch": times(10, 12, 100, 2000, 8000)}
    engine = sentences(advice(here).text())["Engine"]
    assert "faster from 1,024 rows in a batch on, 8.9 times at 65,536 rows." in engine
    assert "For one row in a request the two differ by 2 µs" in engine


def test_a_gpu_that_is_not_faster_is_left_alone():
    here = {"triton": times(12, 14, 30, 250, 900), "torch": times(5, 6, 10, 100, 400)}
    text = advice(here, subject=ENTRY).text()
    said = sentences(text)
    assert said["Engine"] == "torch, on the CPU: the GPU is not faster, 0.4 times at 65,536 rows."
    assert said["Instances"].startswith("16, one for each core: ")
    assert "weights (900 bytes)" in said["Instances"]
    assert text.splitlines()[-2:] == ["    max_batch_size: 16384", "    instance_group [{ count: 16 kind: KIND_CPU }]"]


def test_without_a_gpu_the_nearest_model_speaks_for_one():
    here = {"torch": times(50, 300, 5000, 80000, 320000), "scikit-learn": times(90, 3000, 48000)}
    text = advice(here, gpu=None, cores=2).text(80)
    said = sentences(text)
    assert "Measured on this machine (2 cores)" in text
    assert "Measured on another: NVIDIA H200, 16 cores" in text
    assert "The most similar measured model, not yours: SVR, 2,000 points × 32." in text
    assert said["Engine"] == (  # 300 µs for 64 rows are onnxruntime's, 700 µs for 65,536 the GPU's, of the same model
        "torch, on this CPU. The most similar model that was measured (SVR, 2,000 points × 32) was on an NVIDIA H200, "
        "against the 16 cores of its host, faster from 64 rows in a batch on, 439 times at 65,536 rows."
    )
    # Nothing that is said of the GPU follows from how fast this machine's CPU is.
    slow = advice({"torch": times(500, 3000, 50000)}, gpu=None, cores=2).text(80)
    assert sentences(slow)["Engine"] == said["Engine"]
    assert sentences(slow)["Money"] == said["Money"]
    assert said["Money"].startswith("for that similar model, never idle, a million rows cost $")
    assert "on 16 cores of its host at $" in said["Money"]
    assert said["Instances"].startswith("2, one for each core")
    assert said["Batches"].endswith("The measured model's best on the GPU: up to 16,384 rows.")
    assert text.endswith("--max-batch-size 64 --instances 2")  # a GPU, where there is one, is taken by itself


def test_a_model_like_none_that_was_measured_gets_the_advice_of_this_machine_alone():
    text = advice({"torch": times(50, 300, 5000)}, gpu=None, like=None, cores=1).text()
    said = sentences(text)
    assert said["Engine"].startswith("torch, on the CPU: a model like this has not been measured on a GPU")
    assert said["Instances"].startswith("1, one for each core")
    assert set(said) == {"Engine", "Instances", "Batches"}
    assert "(1 core)" in text


def test_money_is_of_full_load_at_stated_prices_or_one_s_own():
    here = {"triton": times(12, 14, 30, 250, 1000), "torch": times(400, 5000, 60000)}
    listed = sentences(advice(here).text())["Money"]
    assert "on an NVIDIA H200 at $7.91 an hour" in listed
    assert "on 16 cores here at $0.71 (Amazon EC2 on demand, us-east-1, April 2026)" in listed
    own = sentences(advice(here, gpu_usd=3600.0, cpu_usd=36.0).text())["Money"]
    # 65.5 M rows/s for a dollar a second, 16 × 17,067 rows/s for a cent
    assert "a million rows cost $0.015 on an NVIDIA H200 at $3,600.00" in own
    assert "$0.037 on 16 cores here at $36.00 (as given). With less than 42% of its full load" in own
    dear = sentences(advice(here, gpu_usd=36000.0, cpu_usd=36.0).text())["Money"]
    assert dear.endswith("(as given): the CPU is cheaper.")
    assert "Money" not in sentences(advice(here, gpu="A GPU of ours").text())


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("gpu", ["NVIDIA H200", None])
def test_lines_fit(width, gpu):
    here = {"torch": times(50.25, 300, 5000), "scikit-learn": times(90, 3000, 48000)}
    if gpu:
        here["triton"] = times(12, 14, 30, 250, 900)
    lines = advice(here, gpu=gpu).text(width).splitlines()
    assert max(map(len, lines)) <= max(width, 85)
    assert max(len(line) for line in lines if line.startswith("  ") and "rows " not in line) <= max(width, 61)


def test_rates_and_limits():
    found = times(10, 20, 40, 500, 2000)
    assert rate_of(found) == pytest.approx(65536 / 2000 * 1e6)
    assert limit_of(found) == 16384  # 32.8 rows/µs; 25.6 at 1,024 are 78 %
    assert limit_of({1: 10.0}) == 1
    assert limit_of({1: 0.01, 64: 640.0, 1024: 10240.0}) == 64  # one row is never the limit
