"""Makes docs/estimators.md from the registry of lowerings: `python -m docs.estimators`."""

from __future__ import annotations

from pathlib import Path

from triton_regressors.exporter.lowering import registry

PAGE = Path(__file__).parent / "estimators.md"

TEXT = """# What can be exported

Made by `python -m docs.estimators`; do not edit.

These {count} estimators and transformers have a lowering: those of scikit-learn, XGBoost, LightGBM and CatBoost, of
category_encoders, cuML, feature_engine, FLAML, glum, InterpretML, NGBoost, optbinning, pyGAM, PyCaret, PyTorch,
quantile-forest, skorch, skrub and statsmodels, and [AutoGluon's predictors](autogluon.md). [libraries.md](libraries.md)
says what holds for these. A Pipeline, a ColumnTransformer, a search, an ensemble or a chain of them is exported whole,
as one entry. [coverage.md](coverage.md) has them with their options in over a thousand cases, each measured with its
numbers in FP32 and in FP64 against `predict` on the float64 rows as given, beside the results of other converters. A
subclass is exported as its base if it overrides nothing that its base computes with. Any other class, and any function
of your own, is [traced](own_code.md): what it computes becomes part of the entry, or the error names the line that
cannot be. [extending.md](extending.md) says how to export an estimator of your own by hand.

{table}

`make parity` exports every case of the test catalogue, serves it through the real Triton server, and prints the table
of errors against `predict` on the same float64 table.
"""


def page() -> str:
    """Return the page: a table of every class that has a lowering, by its file in estimators/."""
    families: dict[str, list[str]] = {}
    found = {name: own for name, own in registry.lowerings().items() if own.__module__.startswith(registry.OURS)}
    for name, lowering in found.items():
        module = lowering.__module__.rpartition(".")[2]
        families.setdefault(module, []).append(name.rpartition(".")[2].replace("*", "those that have `as_sklearn()`"))
    rows = [f"| {family.replace('_', ' ')} | {', '.join(names)} |" for family, names in sorted(families.items())]
    table = "\n".join(["| family | estimators |", "| --- | --- |", *rows])
    return TEXT.format(count=len(found), table=table)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
