"""The pages of committed results agree with the results."""

from gallery import page


def test_the_committed_pages_are_what_the_committed_results_give() -> None:
    for path, text in page.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m gallery.page"


def point(ours: float, torch: float) -> dict:
    """Return a size's figures, ours and torch's share of the limit."""
    times = {name: {"median_us": 100 / share, "share": share} for name, share in (("map", ours), ("torch", torch))}
    return {"size": [1024], "times": times}


def test_an_aim_is_missed_below_its_share_or_behind_a_peer() -> None:
    found = {"exhibit": "map", "dtype": "float32", "forward": {"ours": ["map"]}}
    for ours, torch, text in ((0.97, 0.9, "yes"), (0.9, 0.8, "no: 95% of the limit"), (0.96, 0.99, "no: 1 × torch")):
        found["forward"]["points"] = [point(0.1, 0.1), point(ours, torch)]
        line = page.row(found, "forward")
        assert line[-1] == text
        assert line[3:7] == [f"{100 / ours:,.0f}", f"{ours:.1%}", "torch", f"{ours / torch:.2f} ×"]
