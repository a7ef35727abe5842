"""The record of one exercise: what to compute, on which arguments it is judged, hints and known mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from gallery.exhibit import Answer, Arguments

FILES = Path(__file__).parent / "files"
"""The folder of the files that learners complete."""


@dataclass(frozen=True)
class Case:
    """Arguments to judge an answer by. Cases are tried in order, from plain to special, up to the first wrong one."""

    name: str

    arguments: Callable[[torch.dtype, torch.device], Arguments]
    """A function that draws the arguments from torch's generator."""

    fault: str
    """The sentence about an answer that is right in all cases before and wrong in this one, if nothing tells more."""

    dtype: torch.dtype = torch.float32
    layout: str = "drawn"
    """How tensors lie in memory: as they are drawn, or by a name of `LAYOUTS` in gallery/exercises/memory.py."""

    special: bool = False
    """True if `fault` tells more than the accesses to memory, as in a case of strides or of NaN."""

    large: bool = False
    """True if the case takes long, and is therefore judged by one order of programs and few repetitions."""


@dataclass(frozen=True)
class Exercise:
    """One exercise: the learner's file defines `solve`, with the arguments and the answer of `reference`.

    The file is `gallery/exercises/files/NAME.py`, with the statement in its docstring. It is copied to the learner.
    """

    name: str

    formula: str
    """The computation in one line, with the shapes."""

    reference: Callable[..., Answer]
    """The computation in torch. With float64 arguments its answer is the truth."""

    cases: Sequence[Case]

    tolerances: Mapping[torch.dtype, float]
    """The largest error in each type of the cases, in units of the truth's largest magnitude."""

    hints: Sequence[str]
    """At most three, from general to plain."""

    solution: Sequence[tuple[str, Sequence[str]]]
    """What the gallery has: files, relative to the repository, and the names of functions in them."""

    solve: Callable[..., Answer]
    """The gallery's function with the arguments of `reference`."""

    language: str = "triton"
    """What runs the file: "triton" for the Triton language, "numba" for Numba CUDA."""

    mistakes: Mapping[str, Callable[..., Answer]] = field(default_factory=dict)
    """Sentences about common mistakes, each with what it computes in the place of `reference`."""

    sweep: Callable[[torch.dtype, torch.device], Arguments] | None = None
    """The arguments that `check --sweep` times."""

    traffic: Callable[..., int] | None = None
    """A function of the arguments: the bytes that must be read and written."""

    @property
    def file(self) -> Path:
        """The file that a learner completes."""
        return FILES / f"{self.name}.py"
