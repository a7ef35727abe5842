"""Makes docs/estimators.md from the registry of lowerings: `python -m docs.estimators`."""

from __future__ import annotations

from pathlib import Path

from triton_regressors.exporter.lowering import registry

PAGE = Path(__file__).parent / "estimators.md"

TEXT = """# What can be exported

Made by `python -m docs.estimators`; do not edit.

These {count} estimators and transformers have a lowering: those of scikit-learn, XGBoost, LightGBM and CatBoost, of
category_encoders, feature_engine, glum, InterpretML, NGBoost, pyGAM, quantile-forest, skrub and statsmodels, and
[AutoGluon's predictors](autogluon.md). A Pipeline, a ColumnTransformer, a search, an ensemble or a chain of them is
exported whole, as one entry. [coverage.md](coverage.md) has them with their options in over a thousand cases, each
measured with its numbers in FP32 and in FP64 against `predict` on the float64 rows as given, beside the results of
other converters. A subclass is exported as its base if it overrides nothing that its base computes with. Any other
class, and any function of your own, is [traced](own_code.md): what it computes becomes part of the entry, or the error
names the line that cannot be. [extending.md](extending.md) says how to export an estimator of your own by hand.

{table}

**skrub.** A TableVectorizer, a Cleaner, a selector of columns or `tabular_pipeline(...)` is exported with the
transformer that it has fitted for each column (skrub 0.11 or later, fitted on tables of pandas). A column of strings
that skrub parsed as dates or numbers is sent as dates or numbers: give the sample with `pd.to_datetime` or
`pd.to_numeric` of it. Strings that skrub takes for missing values (`"N/A"`, `"null"`) are missing in requests too.

**Encoders of characters.** skrub's StringEncoder, GapEncoder, MinHashEncoder and SimilarityEncoder, and
feature_engine's StringSimilarityEncoder and TextFeatures, become tables of the strings that the sample holds. Give a
sample that holds all of them; a request with another string is refused. An encoder of categories takes any string, as
in `TableVectorizer(high_cardinality=TargetEncoder())`.

**sklearn-pandas.** Its last release, 2.2.0, cannot be imported beside scikit-learn 1.9 (`sklearn.utils.tosequence` is
gone). A ColumnTransformer of the same transformers is exported in place of a DataFrameMapper.

`make parity` exports every case of the test catalogue, serves it through the real Triton server, and prints the table
of errors against `predict` on the same float64 table.
"""


def page() -> str:
    """Return the page: a table of every class that has a lowering, by its file in estimators/."""
    families: dict[str, list[str]] = {}
    found = {name: own for name, own in registry.lowerings().items() if own.__module__.startswith(registry.OURS)}
    for name, lowering in found.items():
        module = lowering.__module__.rpartition(".")[2]
        families.setdefault(module, []).append(name.rpartition(".")[2])
    rows = [f"| {family.replace('_', ' ')} | {', '.join(names)} |" for family, names in sorted(families.items())]
    table = "\n".join(["| family | estimators |", "| --- | --- |", *rows])
    return TEXT.format(count=len(found), table=table)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
