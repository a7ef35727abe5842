"""Makes docs/estimators.md from the registry of lowerings: `python -m docs.estimators`."""

from __future__ import annotations

from pathlib import Path

from triton_regressors.exporter.lowering import registry

PAGE = Path(__file__).parent / "estimators.md"

TEXT = """# What can be exported

Made by `python -m docs.estimators`; do not edit.

These {count} estimators and transformers have a lowering: those of scikit-learn, XGBoost, LightGBM and CatBoost, of
category_encoders, cuML, feature_engine, FLAML, glum, InterpretML, NGBoost, optbinning, pyGAM, PyCaret, PyTorch,
quantile-forest, skorch and statsmodels, and [AutoGluon's predictors](autogluon.md). A Pipeline, a ColumnTransformer, a
search, an ensemble or a chain of them is exported whole, as one entry. [coverage.md](coverage.md) has them with their
options in over a thousand cases, each measured with its numbers in FP32 and in FP64 against `predict` on the float64
rows as given, beside the results of other converters. A subclass is exported as its base if it overrides nothing that
its base computes with. Any other class, and any function of your own, is [traced](own_code.md): what it computes
becomes part of the entry, or the error names the line that cannot be. [extending.md](extending.md) says how to export
an estimator of your own by hand.

{table}

## Networks of PyTorch

`tr.export(network, sample=X)` takes a `Sequential`, and any Module whose `forward` applies its layers to the rows:
torch.fx records what it does, and an operation that no plan has is refused by name. Layers are Linear, BatchNorm1d,
LayerNorm, Dropout, Flatten, Identity, ReLU, LeakyReLU, ELU, SELU, GELU, SiLU, Softplus, Sigmoid and Tanh; between
them tensors may be added, subtracted, multiplied, put side by side and sliced by column. The rows are rounded to the
type of the parameters first. Call `network.eval()` before the export: Dropout and BatchNorm1d in training mode are
refused, since their answers there depend on chance or on the batch. skorch's `predict` is always in evaluation mode.
Around it, rows are what its own `predict` takes: a TransformedTargetRegressor of it needs a float32 sample, or a step
that casts.

## AutoML, cuML and optbinning

- **FLAML**: a fitted `AutoML` of the task "regression", with an ensemble too; its columns of strings become codes, and
  unknown strings count as missing, as in its own `predict`. Columns of dates are refused.
- **PyCaret**: the Pipeline that `finalize_model` or `load_model` returns, with transformed targets. `pycaret-core` 3.5
  runs with the scikit-learn that this package needs; PyCaret 3.3 does not, as it needs scikit-learn 1.4. Take its
  estimator and steps out there, `pipeline.steps`, and fit them again. RareCategoryGrouping, GroupFeatures and features
  of dates and text are refused by name.
- **cuML**: any estimator with `as_sklearn()`, from cuML 25.02 on, alone or as a step. The plan is that of
  scikit-learn's estimator, and is measured against cuML's own `predict`. The tests here only have stand-ins for cuML's
  classes.
- **optbinning**: a `BinningProcess` with every metric that is a number. Give it the variables of a single
  `OptimalBinning` or `ContinuousOptimalBinning`, which transform one column and are no step of a Pipeline.

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
