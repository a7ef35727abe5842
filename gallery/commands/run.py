"""The command `run`."""

from __future__ import annotations

from typing import Annotated

import typer

SizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="As 4096x512; `python -m gallery` says what each number is. By default the largest of its curve.",
    ),
]
DtypeOption = Annotated[
    str | None, typer.Option(metavar="TYPE", help="float32, float16 or bfloat16; by default its first.")
]


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An exhibit, as the gallery lists it.")],
    size: SizeOption = None,
    dtype: DtypeOption = None,
) -> None:
    """Check an exhibit against its reference in float64 and, on a GPU, time it beside its peers.

    Kernels lie between guards, as in `check`. First, and without a GPU only, they run through the interpreter of the
    Triton language, which looks at every access to memory and says nothing about their speed.

    Examples:
        python -m gallery run softmax
        python -m gallery run softmax --size 4096x16384 --dtype bfloat16
    """
    import torch

    from gallery.catalogue import find, kernel_device

    device = kernel_device()  # before the language is imported, whose own functions are interpreted as kernels are
    from gallery.errors import GalleryError
    from gallery.show import run, run_interpreted

    exhibit = find(name)
    if device.type == "cuda":
        run_interpreted(exhibit, dtype)
    try:
        run(exhibit, size, dtype)
    except torch.OutOfMemoryError:
        raise GalleryError(f"{name} needs more memory than this GPU has free; a smaller --size may fit.") from None
