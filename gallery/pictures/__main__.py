"""Draws the pictures of docs/gallery.md: `python -m gallery.pictures` writes docs/images/gallery/NAME.svg for all."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from gallery.pictures import elements, products, rows
from gallery.pictures.shapes import Picture

FOLDER = Path(__file__).parents[2] / "docs/images/gallery"
PICTURES: Mapping[str, Callable[[], Picture]] = {
    "map": elements.map_,
    "zip": elements.zip_,
    "map_2d": elements.map_2d,
    "broadcast": elements.broadcast,
    "pooling": elements.pooling,
    "dot": rows.dot,
    "softmax": rows.softmax,
    "copy": elements.copy,
    "matmul": products.matmul,
    "matmul_relu": products.matmul_relu,
    "layer_norm": rows.layer_norm,
    "weighted_sum": rows.weighted_sum,
    "linear_regression": rows.linear_regression,
    "convolution": products.convolution,
    "attention": products.attention,
}
"""The pictures by the exhibit's name."""


def main() -> None:
    """Write all pictures, unless the command line says something else."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
