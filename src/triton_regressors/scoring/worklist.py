"""The worklist of a scoring run: the scorer, the files that it fits, and their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.files import Part, Source, find_files, kept_fields, look, plan_parts
from triton_regressors.scoring.scorer import Scorer
from triton_regressors.tables.errors import TableError


@dataclass(frozen=True)
class Worklist:
    """Files and their parts, in order; `schema` is the output's. `left_out`, file → reason, may grow during the run."""

    scorer: Scorer
    sources: list[Source]
    parts: list[Part]
    schema: pa.Schema
    left_out: dict[str, str]

    def settings(self, on_gpu: bool) -> dict[str, Any]:
        """Return all that determines the answers, for the journal."""
        scorer = self.scorer
        return {
            "entry": str(scorer.entry.directory),
            "version": scorer.entry.version,
            "outputs": scorer.asked,
            "keep": scorer.keep,
            "columns": [name for tensor in scorer.inputs for name in tensor.columns],
            "where": None if scorer.condition is None else scorer.condition.text,
            "device": "GPU" if on_gpu else "CPU",
            "digest": scorer.digest,
            "files": {source.path: [source.size, source.mtime_ns, source.groups] for source in self.sources},
        }


def make_worklist(
    entry: Path | str, given: Sequence[Any], options: Mapping[str, Any], *, leave_out: bool, by_row: bool
) -> Worklist:
    """Look at every file before the first is scored.

    Args:
        entry: the entry's directory.
        given: files, folders and globs.
        options: the scorer's.
        leave_out: whether files that do not fit are left out; else they are errors.
        by_row: whether a cell of a .csv that is not a number concerns only its row.

    Raises:
        ScoringError: there are no files, or one does not fit.
    """
    scorer, left_out, sources = Scorer(entry, **options), dict[str, str](), list[Source]()
    for path, base in find_files(given):
        try:
            source = look(path, base, scorer, by_row=by_row)
            if not all(tensor.columns for tensor in scorer.inputs):  # all others then go by the names of the first
                scorer = Scorer(entry, **{**options, "columns": _features(source, scorer)})
                source = look(path, base, scorer, by_row=by_row)
        except TableError as error:
            if not leave_out:
                raise ScoringError(str(error)) from None
            left_out[str(path)] = str(error)
            continue
        sources.append(source)
    if not sources:
        raise ScoringError(f"No file can be scored: {next(iter(left_out.values()))}")
    kept = kept_fields(sources, scorer)
    made = [pa.field(name, pa.float32()) for fields in scorer.fields.values() for name in fields]
    return Worklist(scorer, sources, plan_parts(sources), pa.schema([*kept, *made]), left_out)


def _features(source: Source, scorer: Scorer) -> list[str]:
    """Return the columns of a file that are the features of a model that was trained without names."""
    names = [name for name in source.own.names if name not in scorer.keep]
    width = sum(tensor.width for tensor in scorer.inputs)
    if len(names) != width:
        raise ScoringError(
            f"Model '{scorer.name}' was trained without column names and takes {width} columns; {source.path} has "
            f"{len(names)} that are not kept. Name the features with --columns (columns=[...])."
        )
    return names
