"""An entry's contract: its inputs, its outputs, and their differences from the estimator's own predictions.

`export`, `describe` and notebooks show the same record, as text or as HTML. The example requests come from
`snippets.py`. Like an entry's own files, the contract is read without torch and scikit-learn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from triton_regressors.contribution_game import ERROR, OUTPUTS, meaning
from triton_regressors.contribution_game import OUTPUT as CONTRIBUTIONS
from triton_regressors.describe.fleet_text import fleet_sentences
from triton_regressors.describe.input_text import BRIEF_WIDTH, Input, inputs_of, labels
from triton_regressors.describe.interval_text import interval_sentences
from triton_regressors.describe.profile_text import few_rows_sentence, profile_sentences
from triton_regressors.describe.snippets import curl_command, python_snippet
from triton_regressors.kernels.entry import (
    ContributionsReport,
    Document,
    Float32Rows,
    Golden,
    OutputParity,
    ParityReport,
)
from triton_regressors.kernels.format.inputs import NUMBERS, Inputs
from triton_regressors.kernels.format.member_table import MemberTable
from triton_regressors.kernels.format.row_profile import RowProfile

MEANINGS = {
    "y": "the prediction",
    "std": "the standard deviation of the prediction",
    "lower": "the lower end of the prediction interval",
    "upper": "the upper end of the prediction interval",
    "model_used": "the place of the model that answered among the ids",
    CONTRIBUTIONS: "the contributions of the columns, then the base",
    ERROR: "the standard errors of the contributions",
    "out_of_range": "the number of columns in which a row is unlike the profile",
}
BRIEF_INPUTS = 6
"""The number of inputs in the brief form."""


@dataclass(frozen=True)
class Output:
    """An output tensor, FP32 `[rows, width]`, and its difference from the estimator's own output at export.

    `rows` is the number of rows that were compared, None for all rows of the report.
    """

    name: str
    width: int
    meaning: str
    parity: OutputParity
    rows: int | None = None

    @property
    def shape(self) -> str:
        """The tensor's shape in words."""
        return f"[rows, {self.width}]"


@dataclass(frozen=True, repr=False)
class Contract:
    """A model's inputs and outputs under its name on a server; `version` is None before the export.

    `estimator` is the class of the estimator; `python` and `shell` are code that asks a server on this machine;
    `interval` holds sentences on the prediction interval, and `profile` on the rows that served rows are compared with,
    if there are any; `few_rows` is a sentence if these are few. `table` holds sentences on the types of the table for
    which the answers are exact, if these are not float64. `fleet` holds sentences on the models of a fleet.
    """

    name: str
    version: int | None
    estimator: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    report: ParityReport
    python: str
    shell: str
    interval: tuple[str, ...] = ()
    profile: tuple[str, ...] = ()
    few_rows: str | None = None
    table: tuple[str, ...] = ()
    fleet: tuple[str, ...] = ()
    contributions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Contract of {self.name}, {self._version()}\n{self.brief()}"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()

    def text(self, width: int = 100) -> str:
        """Return the contract in lines of up to `width` characters, except for code. Only headings are flush left."""
        return "\n".join(self._lines(width))

    def brief(self) -> str:
        """Return the inputs, the outputs and their parity, one line each."""
        some = self.inputs[:BRIEF_INPUTS]
        lines = _aligned(
            [
                *(("input", each.name, each.datatype, each.shape, each.few()) for each in some),
                *(("output", each.name, "FP32", each.shape, each.meaning) for each in self.outputs),
            ]
        )
        if len(self.inputs) > len(some):
            lines.insert(len(some), f"  and {len(self.inputs) - len(some)} more inputs")
        for each in self.outputs:
            rows = f"{each.rows or self.report.rows:,} rows from {self.report.rows_from}"
            error = f"{each.parity.max_error:.1e} standard deviations"
            lines.append(f"  parity  {each.name}: largest error {error} on {rows}")
        return "\n".join(lines)

    def html(self, where: str = "") -> str:
        """Return the contract as an HTML fragment in the page's colours; `where` is the place of its files."""
        about = [f"<b>{escape(self.name)}</b>", *map(escape, filter(None, [self.estimator, self._version(), where]))]
        inputs = [(each.name, each.datatype, each.shape, _columns_cell(each)) for each in self.inputs]
        outputs = [
            (each.name, "FP32", each.shape, f"{escape(each.meaning)}<br>{escape(self._error(each))}")
            for each in self.outputs
        ]
        return (
            '<div style="max-width: 64em; line-height: 1.4">'
            f"{_paragraph(' · '.join(about))}{_table('input', 'columns', inputs)}{_table('output', 'meaning', outputs)}"
            f"{_paragraph('<br>'.join(map(escape, self._measured())))}"
            f"{_details('Models', _paragraph('<br>'.join(map(escape, self.fleet)))) if self.fleet else ''}"
            f"{_paragraph('<br>'.join(map(escape, self.interval))) if self.interval else ''}"
            f"{_paragraph('<br>'.join(map(escape, self.contributions))) if self.contributions else ''}"
            f"{_details('Profile', _paragraph('<br>'.join(map(escape, self.profile)))) if self.profile else ''}"
            f"{_paragraph('Ask it from Python')}{_code(self.python)}"
            f"{_details('Ask it from a shell', _code(self.shell))}</div>"
        )

    def _lines(self, width: int) -> Iterator[str]:
        """Yield the lines of `text`."""
        yield f"{self.name} ({self.estimator}), {self._version()}"
        lines = _aligned(
            [
                *((each.name, each.datatype, each.shape, "") for each in self.inputs),
                *((each.name, "FP32", each.shape, each.meaning) for each in self.outputs),
            ]
        )
        yield from ("", "Inputs")
        for tensor, line in zip(self.inputs, lines, strict=False):
            yield line
            for sentence in (tensor.all(), *tensor.notes):
                yield from _wrapped(sentence, width, 6)
        yield from ("", "Outputs", *lines[len(self.inputs) :])
        yield from ("", "Parity with the estimator's own predict")
        for sentence in (*(f"{each.name}: {self._error(each)}." for each in self.outputs), *self._measured()):
            yield from _wrapped(sentence, width, 2)
        for heading, sentences in (
            ("Models", self.fleet),
            ("Prediction interval", self.interval),
            ("Contributions", self.contributions),
            ("Profile", self.profile),
        ):
            if sentences:
                yield from ("", heading)
            for sentence in sentences:
                yield from _wrapped(sentence, width, 2)
        yield from ("", "Ask it from Python", textwrap.indent(self.python, "    "))
        yield from ("", "Ask it from a shell", textwrap.indent(self.shell, "    "))

    def _version(self) -> str:
        """Return the version in words."""
        return "not exported yet" if self.version is None else f"version {self.version}"

    def _error(self, output: Output) -> str:
        """Return an output's largest errors in words."""
        found = output.parity
        rounded = f" ({found.rounded.max_error:.1e} to the rounded rows)" if found.rounded else ""
        return (
            f"largest error {found.max_error:.1e} standard deviations{rounded}, {found.max_ulp:.2f} float32 ulp; "
            f"accepted: {self.report.tolerance:.0e} or 1 ulp"
        )

    def _measured(self) -> list[str]:
        """Return sentences on the rows on which the errors were measured, and `notes`."""
        report = self.report
        return [f"Measured on {report.rows:,} rows from {report.rows_from}, {report.engine} engine.", *self.notes()]

    def notes(self) -> list[str]:
        """Return the reasons for types and precision, and notes on ties, a small profile and large errors."""
        report = self.report
        notes = [*self.table, *(f"{reason}." for reason in (report.why, report.precision, report.ties) if reason)]
        notes += [] if report.float32 is None else _notes_on_float32(report.float32)
        notes += [self.few_rows] if self.few_rows else []
        for output in self.outputs:
            found = output.parity
            if found.max_error > report.tolerance:
                if found.excess <= report.tolerance:
                    rest = f", apart from {found.excess:.0e}" if found.excess else ""
                    why = f"is within one unit in the answer's last float32 place{rest}"
                else:
                    why = (
                        "comes from rounding to FP32, which was requested; the entry answers the rounded rows as "
                        "predict does"
                    )
                notes.append(f"Output {output.name} passes: its error of {found.max_error:.1e} {why}.")
        return notes


def contract_of(
    name: str,
    version: int | None,
    document: Document,
    golden: Golden,
    profile: RowProfile | None = None,
    members: MemberTable | None = None,
    member: str | None = None,
) -> Contract:
    """Return the contract of a model under a name; its examples are made from the `golden` rows.

    A fleet's has the parity in the table `members`: of the worst model, of the median one, and of the one with the id
    `member` if it is given.
    """
    inputs, names = document.inputs, document.provenance.feature_names
    called, outputs = labels(document), tuple(document.parity.outputs)
    report = document.contributions
    explained = None if report is None else meaning_of(report)
    return Contract(
        name,
        version,
        document.provenance.class_.rpartition(".")[2],
        inputs_of(document),
        tuple(
            Output(output, len(found.unit), _meaning(output, len(found.unit)), found, _rows(output, report))
            for output, found in document.parity.outputs.items()
        ),
        document.parity,
        python_snippet(name, inputs, outputs, names, golden, document.boolean_columns or (), explained),
        curl_command(name, inputs, outputs, golden, explained),
        () if document.interval is None else tuple(interval_sentences(document.interval)),
        () if profile is None else tuple(profile_sentences(profile, inputs, called)),
        None if profile is None else few_rows_sentence(profile),
        _on_table(inputs, called),
        () if members is None else tuple(fleet_sentences(document, members, member)),
        () if report is None else tuple(contribution_sentences(report)),
    )


def contribution_sentences(report: ContributionsReport) -> list[str]:
    """Return sentences on the game of contributions, and on the evidence for them."""
    compared = [f"their sum by {report.additivity:.0e}"]
    if report.definition is not None:
        compared.append(f"Shapley's definition, computed for all coalitions, by {report.definition:.0e}")
    return [
        meaning_of(report),
        *cost_sentences(report),
        "They say how the model came to its answer, and not what would happen if a column changed.",
        f"Unrounded, those of {report.explained:,} rows missed {' and '.join(compared)} standard deviations at most.",
    ]


def cost_sentences(report: ContributionsReport | None) -> list[str]:
    """Return a sentence on the cost of contributions that have no closed form, if there are such ones."""
    if report is None or not report.evaluations:
        return []
    took = f"The contributions of a row take {report.evaluations:,} answers of the model"
    every = f"all combinations of {report.players} columns with {report.rows:,} background rows"
    if not report.permutations:
        return [f"{took}: {every}."]
    return [
        f"{took}, for {report.permutations:,} orders of the columns. They are estimated: {every} would take "
        f"2^{report.players} × {report.rows:,}."
    ]


def meaning_of(report: ContributionsReport) -> str:
    """Return the meaning of an entry's contributions, in a sentence."""
    return meaning(report.game, report.rows, report.links, report.permutations)


def _rows(output: str, report: ContributionsReport | None) -> int | None:
    """Return how many rows of an output were compared, if not all."""
    return report.explained if report is not None and output in OUTPUTS else None


def _meaning(output: str, width: int) -> str:
    """Return the meaning of an output."""
    meaning = MEANINGS.get(output, "a further output of the model")
    return meaning if width == 1 or output in OUTPUTS else f"{meaning}, a column for each target"


def _on_table(inputs: Inputs, called: Sequence[str]) -> tuple[str, ...]:
    """Return a note on the table for which the answers are exact, if columns of it are float32."""
    single = [called[column] for column in inputs.float32 or ()]
    if not single:
        return ()
    where = "" if inputs.columns() == {NUMBERS: inputs.float32} else f" in {', '.join(single)}"
    return (f"Exact for a table with float32{where}: the entry answers such a table as predict does.",)


def _notes_on_float32(found: Float32Rows) -> list[str]:
    """Return notes on an export's sample with float32 columns."""
    sums = f"{' and '.join(found.sums)} compute{'s' * (len(found.sums) == 1)} in float32 before a decision"
    moved = (
        f"predict answers {found.moved:,} of {found.rows:,} rows of the sample differently in float32 than in float64, "
        f"by up to {found.max_error:.2g} standard deviations"
    )
    if found.answered:
        return [
            *([f"{moved}."] if found.moved else []),
            f"{sums}. On another processor the last bits can differ, and with them predict's own answers.",
        ]
    why = (
        f"{sums}, and the order of the sum depends on the processor" if found.sums else "The estimator sums in float32"
    )
    return [
        f"{moved}. {why}.",
        "The entry answers what predict answers to float64 rows. Compare it with "
        'predict(sample.astype("float64")), and call predict with float64 rows too.',
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines, with all but the last cell aligned in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return [
        ("  " + "  ".join([*(cell.ljust(wide) for cell, wide in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]


def _wrapped(sentence: str, width: int, indent: int) -> list[str]:
    """Return a sentence in lines of up to `width` characters, indented further after the first."""
    return textwrap.wrap(
        sentence,
        max(width, 40),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _columns_cell(tensor: Input) -> str:
    """Return an input's columns and notes as HTML; many columns are folded to a few until a reader unfolds them."""
    names, notes = escape(tensor.all()), list(map(escape, tensor.notes))
    if len(names) > BRIEF_WIDTH * 2:
        return _details(escape(tensor.few()), names) + "<br>".join(notes)
    return "<br>".join([names, *notes])


def _details(summary: str, content: str) -> str:
    return f'<details><summary style="cursor: pointer; display: list-item">{summary}</summary>{content}</details>'


def _paragraph(content: str) -> str:
    return f'<p style="margin: .6em 0">{content}</p>'


def _table(first: str, last: str, rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Return a table of tensors as HTML: name, type, shape, and HTML in the last column."""
    style = "text-align: left; vertical-align: top; padding: .2em 1em .2em 0"
    styles = [f"{style}; white-space: nowrap"] * 3 + [style]

    def cells(tag: str, contents: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="{style}">{content}</{tag}>' for style, content in zip(styles, contents, strict=True)
        )

    body = "".join(f"<tr>{cells('td', (*map(escape, row[:3]), row[3]))}</tr>" for row in rows)
    return (
        f'<table style="color: inherit; margin: .6em 0"><thead><tr>{cells("th", (first, "type", "shape", last))}</tr>'
        f"</thead><tbody>{body}</tbody></table>"
    )


def _code(code: str) -> str:
    """Return code as HTML, to be copied. It sets its own font, which a notebook would otherwise not keep."""
    style = (
        "font: .9em/1.4 monospace; margin: .4em 0; padding: .6em; overflow-x: auto; color: inherit; background: none; "
        "border: 1px solid rgba(128, 128, 128, .4); border-radius: 4px"
    )
    return f'<pre style="{style}">{escape(code)}</pre>'
