"""Cases of quantile-forest's regressors: the mean and quantiles, one target a leaf and more."""

from typing import Any

from quantile_forest import ExtraTreesQuantileRegressor, RandomForestQuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.exporter.catalogue.case import add
from tests.exporter.data import diabetes, several_targets, small


def forest(trees: int = 12, **options: Any) -> RandomForestQuantileRegressor:
    return RandomForestQuantileRegressor(trees, max_depth=5, random_state=0, **options)


for name, (estimator, data) in {
    "median": (forest(), small),
    "median-odd": (forest(11), small),
    "quantiles": (forest(default_quantiles=[0.05, 0.5, 0.9]), small),
    "ends": (forest(9, default_quantiles=[0.0, 0.25, 1.0]), small),
    "one": (forest(1, default_quantiles=0.3), small),
    "mean": (forest(default_quantiles="mean"), diabetes),
    "mean-list": (forest(default_quantiles=["mean"], bootstrap=False), small),
    "mean-several": (forest(default_quantiles="mean", max_samples_leaf=None), small),
    "mean-share": (forest(default_quantiles="mean", max_samples_leaf=0.02, min_samples_leaf=3), small),
    "targets": (forest(6, default_quantiles=[0.2, 0.5]), several_targets),
    "targets-mean": (forest(6, default_quantiles="mean", max_samples_leaf=4), several_targets),
    "monotonic": (forest(monotonic_cst=[1, 0, 0, -1, 0]), small),
}.items():
    add(f"quantile-forest-{name}", "steps", estimator, data)
extra = ExtraTreesQuantileRegressor(10, max_depth=4, random_state=1, default_quantiles=[0.1, 0.75])
add("quantile-forest-extra-trees", "steps", make_pipeline(StandardScaler(), extra), small)
