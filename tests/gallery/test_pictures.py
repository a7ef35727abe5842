"""The pictures of docs/gallery.md are the generator's, and lie on their cards."""

import importlib
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gallery.catalogue import PATH
from gallery.pictures.__main__ import FOLDER, PICTURES
from gallery.pictures.products import grouped
from gallery.pictures.rows import ONLINE_ROW, online_states
from gallery.pictures.shapes import WIDTH

SVG = "{http://www.w3.org/2000/svg}"


def test_every_step_of_the_path_has_a_picture_and_nothing_else_is_drawn() -> None:
    assert list(PICTURES) == list(PATH)
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(PATH)


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_committed_is_what_the_generator_draws(name: str) -> None:
    drawn = PICTURES[name]().svg()
    assert PICTURES[name]().svg() == drawn
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn, "run `make pages`"


@pytest.mark.parametrize("module", ["gallery.pictures.__main__", "gallery.page", "gallery.notebooks.__main__"])
@pytest.mark.parametrize("argument", ["--help", "map"])
def test_help_and_unknown_arguments_write_nothing(
    module: str, argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [module, argument])
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: pytest.fail("a file was written"))
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main()
    assert ended.value.code == (0 if argument == "--help" else 2)
    assert "usage: " in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_lies_outside_the_card(name: str) -> None:
    root = ElementTree.fromstring(PICTURES[name]().svg())
    height = float(root.get("viewBox", "").split()[3])
    assert root.find(f"{SVG}title") is not None
    for part in root.findall(f"{SVG}rect"):
        x, y, wide, high = (float(part.get(side, "nan")) for side in ("x", "y", "width", "height"))
        assert 0 <= x < x + wide <= WIDTH
        assert 0 <= y < y + high <= height
    for part in root.findall(f"{SVG}text"):
        x, y, wide = float(part.get("x", "nan")), float(part.get("y", "nan")), least_width(part)
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[part.get("text-anchor", "")]
        assert 10 <= y <= height - 5, part.text
        assert left >= 5, part.text
        assert left + wide <= WIDTH - 5, part.text
    for part in root.findall(f"{SVG}path"):
        points = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", part.get("d", ""))
        assert all(0 <= float(x) <= WIDTH and 0 <= float(y) <= height for x, y in points)


def least_width(text: ElementTree.Element) -> float:
    """Return a text's rough width in a wide font: six tenths of its size for each character."""
    return 0.6 * float(text.get("font-size", "nan")) * len(text.text or "")


def test_the_picture_of_the_online_softmax_ends_with_the_sum_of_the_whole_row() -> None:
    import torch

    largest, total = online_states()[-1]
    assert largest == max(ONLINE_ROW)
    row = torch.tensor(ONLINE_ROW, dtype=torch.float64)
    assert total == pytest.approx(float((row - largest).exp().sum()), rel=1e-12)


def test_the_picture_of_the_products_order_has_every_tile_once() -> None:
    for group in 1, 3, 4:
        places = [grouped(tile, 6, 6, group) for tile in range(36)]
        assert sorted(places) == [(i, j) for i in range(6) for j in range(6)]
    assert [grouped(tile, 6, 6, 3) for tile in range(4)] == [(0, 0), (1, 0), (2, 0), (0, 1)]
