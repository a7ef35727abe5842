"""The GPU's counters, from a table as ncu writes it: a script stands in for ncu, which needs a GPU."""

from pathlib import Path

import pytest

from benchmarks.bounds import contribution_counters as counters

TABLE = [
    ["ID", "Kernel Name", counters.TIME, counters.INSTRUCTIONS, *counters.SHARES.values()],
    ["", "", "us", "inst", *["%"] * len(counters.SHARES)],
    ["0", "first", "10.0", "1,000", *["50"] * len(counters.SHARES)],
    ["1", "second", "30.0", "2,000", *["100"] * len(counters.SHARES)],
]
LINES = "\n".join(",".join(f'"{cell}"' for cell in row) for row in TABLE)


def test_shares_are_weighted_by_the_kernels_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "ncu"
    script.write_text(
        '#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\n'
        f"cat > \"$2\" <<'END'\n==PROF== a note before the table\n{LINES}\nEND\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = counters.measure("depth-8", 100)
    assert (found["kernels"], found["time_us"], found["instructions_per_row"]) == (2, 40.0, 30.0)
    assert found["shares"] == dict.fromkeys(counters.SHARES, 0.875)


def test_without_ncu_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="needs ncu"):
        counters.measure("depth-8", 100)
