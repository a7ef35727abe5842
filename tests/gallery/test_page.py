"""The pages of committed results agree with the results."""

import pytest

from gallery import page


def test_the_committed_pages_are_what_the_committed_results_give() -> None:
    for path, text in page.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m gallery.page"


SAME = {"exhibit": "copy", "forward": {"points": [{"times": {"torch": {"share": 0.98}}}]}}


def point(ours: float, torch: float, spread: float = 0.0) -> dict:
    """Return a size's figures, ours and torch's share of a copy."""
    times = {
        name: {"median_us": 100 / share, "share": share, "spread": spread}
        for name, share in (("map", ours), ("torch", torch))
    }
    return {"size": [1024], "times": times, "limit": {"spread": 0.0123}}


@pytest.mark.parametrize(
    ("ours", "torch", "spread", "met", "faster"),
    [
        (0.97, 0.9, 0.0, "yes", "1.08 ×"),
        (0.9, 0.8, 0.0, "no: 95%", "1.12 ×"),
        (0.96, 0.99, 0.0, "no: as fast as torch", "0.97 ×"),
        (0.96, 0.99, 0.05, "yes", "≈ 0.97 ×"),
        (0.9, 0.99, 0.01, "no: 95%, as fast as torch", "0.91 ×"),
    ],
)
def test_an_aim_is_missed_below_its_share_or_behind_a_peer(
    ours: float, torch: float, spread: float, met: str, faster: str
) -> None:
    found = {"exhibit": "map", "dtype": "float32"}
    found["forward"] = {"ours": ["map"], "unit": "GB/s", "points": [point(0.1, 0.1), point(ours, torch, spread)]}
    (line,) = page.rows({"exhibits": [SAME]}, found, "forward")
    assert line[1:] == [
        "1,024", "float32", f"{100 / ours:,.0f}", f"{ours:.1%} of a copy", "2.0%", met, "torch", faster
    ]  # fmt: skip


def test_the_noise_is_how_far_one_operation_lies_from_itself() -> None:
    """In blocks of one contender, which may be even, or as two contenders."""
    for limit, noise in (({}, 0.02), ({"spread": 0.001}, 0.02), ({"spread": 0.03}, 0.03)):
        assert page.noise({"exhibits": [SAME]}, "GB/s", {"limit": limit}) == pytest.approx(noise)


def test_every_way_has_a_line_and_a_row_that_is_read_twice_says_its_bound() -> None:
    figures = {name: {"median_us": 100.0, "share": 0.65, "spread": 0.0} for name in ("softmax", "torch")}
    points = [
        {"size": size, "times": figures, "limit": {"spread": 0}} for size in ([8, 9], [16384, 16384], [1024, 262144])
    ]
    found = {
        "exhibit": "softmax",
        "dtype": "float32",
        "forward": {"ours": ["softmax"], "unit": "GB/s", "points": points},
    }
    lines = page.rows({"exhibits": [SAME]}, found, "forward")
    assert [line[1] for line in lines] == ["16,384 × 16,384", "1,024 × 262,144"]
    assert [line[6] for line in lines] == ["no: 95%", "no: 95%, rows are read twice, which bounds it at 2/3"]


def test_of_the_block_both_times_are_said() -> None:
    def subject(**more: float) -> dict:
        levels = {
            "Triton language": {"median_us": 440, "host_us": 759},
            "torch.compile": {"median_us": 438, "host_us": 435},
        }
        for figures in levels.values():
            figures |= more
        return {"subjects": [{"subject": "block", "levels": levels}]}

    assert "takes 440 µs on the GPU, and 438 with torch.compile" in page.block(subject())
    assert "they take 759 and 435." in page.block(subject())
    assert "As one CUDA graph" not in page.block(subject())
    assert page.block(subject(graph_us=441.0)).endswith("they take 441 and 441.")
