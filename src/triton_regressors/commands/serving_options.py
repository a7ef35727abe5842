"""Options of the commands that write an entry, on how the server runs it. Their defaults are those of `export`."""

from __future__ import annotations

from typing import Annotated

import typer

_RUN = "How the server runs it"

MaxBatchSizeOption = Annotated[
    int | None,
    typer.Option(metavar="ROWS", help="Most rows in one execution; default 4096.", rich_help_panel=_RUN),
]
DynamicBatchingOption = Annotated[
    bool | None,
    typer.Option(
        "--dynamic-batching/--no-dynamic-batching",
        help="Whether requests are gathered into batches; default: yes.",
        rich_help_panel=_RUN,
    ),
]
MaxQueueDelayOption = Annotated[
    int | None,
    typer.Option(
        metavar="US", help="Microseconds that a request may wait for others; default 0.", rich_help_panel=_RUN
    ),
]
PreferredBatchSizeOption = Annotated[
    list[int] | None,
    typer.Option(metavar="ROWS", help="A batch size to aim at; can be repeated.", rich_help_panel=_RUN),
]
InstancesOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Copies that run side by side; default 1.", rich_help_panel=_RUN),
]
InstanceKindOption = Annotated[
    str | None, typer.Option(metavar="KIND", help="auto, gpu or cpu; default auto.", rich_help_panel=_RUN)
]
GpuInputsOption = Annotated[
    bool | None,
    typer.Option(
        "--gpu-inputs/--no-gpu-inputs",
        help="Whether rows that a request has in a GPU's memory stay there; default no.",
        rich_help_panel=_RUN,
    ),
]
EngineOption = Annotated[
    str | None, typer.Option(help="auto, triton, torch or interpret; default auto.", rich_help_panel=_RUN)
]
ObserveOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="Whether the server's metrics describe the rows: off, sampled or on; default sampled.",
        rich_help_panel=_RUN,
    ),
]
VersionsOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="How many newest versions to serve; default 1.", rich_help_panel=_RUN),
]
