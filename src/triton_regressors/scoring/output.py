"""The output of answers: one file for all rows, or one for each file of rows; it appears only when complete."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.files import SUFFIXES, Source
from triton_regressors.scoring.part_scoring import GROUP_ROWS, writing


def check_output(output: Path, given: Sequence[Any], files: Sequence[str]) -> None:
    """Raise ScoringError if an output cannot be made, or a later run would take it for rows."""
    if output.suffix and output.suffix.lower() not in SUFFIXES and not output.is_dir():
        raise ScoringError(f"Cannot write to {output}: the suffix must be {', '.join(SUFFIXES)}, or none for a folder.")
    if not output.parent.is_dir():
        raise ScoringError(f"Cannot write to {output}: there is no directory {output.parent}.")
    resolved = output.resolve()
    inside = [folder for folder in map(Path, given) if folder.is_dir() and resolved.is_relative_to(folder.resolve())]
    if str(resolved) in files or inside:
        raise ScoringError(f"{output} lies among the rows{f' in {inside[0]}' if inside else ''}; give another place.")


def targets(output: Path, sources: Sequence[Source]) -> dict[Path, set[int]]:
    """Return each file of answers and the positions of the sources whose rows it has.

    Raises:
        ScoringError: two files would have the same name.
    """
    if output.suffix.lower() in SUFFIXES and not output.is_dir():
        return {output: set(range(len(sources)))}
    found: dict[Path, set[int]] = {}
    for place, source in enumerate(sources):
        path = output / Path(source.below).with_suffix(".parquet")
        if path in found:
            (other,) = found[path]
            raise ScoringError(f"{sources[other].path} and {source.path} would both become {path}.")
        found[path] = {place}
    return found


def join(files: Sequence[Path], target: Path, schema: pa.Schema) -> None:
    """Join the answers of parts into one file, in order; a single part is moved."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if len(files) == 1 and target.suffix.lower() == ".parquet":
            files[0].replace(target)
            return
        to_csv = target.suffix.lower() == ".csv"
        make = pyarrow.csv.CSVWriter if to_csv else pq.ParquetWriter
        with writing(target) as temporary, make(temporary, schema) as writer:
            for table in _groups(files):
                writer.write_table(table) if to_csv else writer.write_table(table, row_group_size=GROUP_ROWS)
    except (OSError, ValueError) as error:
        raise ScoringError(f"Cannot write {target}: {error}.") from None


def list_refused(output: Path, refused: Sequence[tuple[str, str, str]]) -> Path | None:
    """Write file, row and reason of each refusal beside the output, and return the path; None without refusals."""
    path = output.with_name(f"{output.stem if output.suffix.lower() in SUFFIXES else output.name}.refused.csv")
    path.unlink(missing_ok=True)  # of an earlier run
    if not refused:
        return None
    with writing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("file", "row", "reason"), *refused])
    return path


def _groups(files: Sequence[Path]) -> Iterator[pa.Table]:
    for path in files:
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number)
