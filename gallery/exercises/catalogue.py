"""All exercises, in the best order for solving."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache

from gallery.catalogue import kernel_device
from gallery.errors import GalleryError
from gallery.exercises.exercise import Exercise


@cache
def exercises() -> Mapping[str, Exercise]:
    """Return the exercises by name, in their order."""
    kernel_device()  # before the gallery's kernels are imported

    from gallery.exercises import elements, in_numba, products, reductions

    found = (*elements.EXERCISES, *reductions.EXERCISES, *products.EXERCISES, *in_numba.EXERCISES)
    return {exercise.name: exercise for exercise in found}


def find(name: str) -> Exercise:
    """Return an exercise; if there is none, raise `GalleryError` with the nearest names, or with all."""
    known = exercises()
    if name not in known:
        near = get_close_matches(name, known, cutoff=0.5)
        raise GalleryError(
            f"There is no exercise {name}; "
            + (f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}.")
        )
    return known[name]
