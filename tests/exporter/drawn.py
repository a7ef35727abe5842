"""Strategies that draw estimators for test_properties.py: a table for each family, options beside each name.

An option is a tuple of values to choose from, or a strategy of its own.
"""

from typing import Any

from hypothesis import strategies as st
from sklearn.feature_selection import f_regression
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, RationalQuadratic, WhiteKernel
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVR
from sklearn.utils import all_estimators

Strategy = st.SearchStrategy[Any]
Table = dict[str, dict[str, Any]]

CLASSES = dict(all_estimators())
YES_OR_NO = (False, True)


def drawn(table: Table) -> Strategy:
    """Return a strategy for one of the table's estimators with one of each option's values."""
    return st.one_of(*(st.builds(CLASSES[name], **_options(options)) for name, options in table.items()))


def pipelines(*steps: Strategy) -> Strategy:
    return st.builds(make_pipeline, *steps)


def _options(options: dict[str, Any]) -> dict[str, Strategy]:
    return {name: st.sampled_from(value) if isinstance(value, tuple) else value for name, value in options.items()}


SCALERS: Table = {
    "StandardScaler": {"with_mean": YES_OR_NO, "with_std": YES_OR_NO},
    "RobustScaler": {"with_centering": YES_OR_NO, "unit_variance": YES_OR_NO},
    "MinMaxScaler": {"clip": YES_OR_NO},
    "MaxAbsScaler": {},
}
scalers = drawn(SCALERS)
ridge = drawn({"Ridge": {"alpha": (1e-3, 1.0)}})

linear = drawn(
    {
        "LinearRegression": {"fit_intercept": YES_OR_NO, "positive": YES_OR_NO},
        "Ridge": {"alpha": (1e-6, 1.0, 1e6), "fit_intercept": YES_OR_NO, "positive": (False, False, True)},
        "RidgeCV": {},
        "Lasso": {"alpha": (1e-3, 1.0), "fit_intercept": YES_OR_NO},
        "ElasticNet": {"alpha": (1e-3, 1.0), "l1_ratio": (0.1, 0.9)},
        "Lars": {"n_nonzero_coefs": (1, 3)},
        "OrthogonalMatchingPursuit": {"n_nonzero_coefs": (1,)},
        "BayesianRidge": {"max_iter": (20,)},
        "ARDRegression": {"max_iter": (20,)},
        "HuberRegressor": {"max_iter": (20,)},
        "LinearSVR": {"random_state": (0,), "max_iter": (50,)},
        "PLSRegression": {"n_components": (1,), "scale": YES_OR_NO},
        "PoissonRegressor": {"alpha": (1e-3, 1.0), "max_iter": (20,)},
        "GammaRegressor": {"max_iter": (20,)},
        "TweedieRegressor": {"power": (0, 1.5, 3), "link": ("auto", "log"), "max_iter": (20,)},
        "DummyRegressor": {"strategy": ("mean", "median")},
    }
)

polynomial = pipelines(
    st.one_of(st.just("passthrough"), scalers),
    drawn({"PolynomialFeatures": {"degree": (1, 2, 3), "interaction_only": YES_OR_NO, "include_bias": YES_OR_NO}}),
    drawn({"Ridge": {}, "LinearRegression": {}}),
)

TREE = {"max_depth": (None, 1, 3), "min_samples_leaf": (1, 3), "random_state": (0, 1)}
FOREST = {"n_estimators": (1, 5), **TREE}
SINGLE_TREES: Table = {
    "DecisionTreeRegressor": {"criterion": ("squared_error", "absolute_error"), **TREE},
    "ExtraTreeRegressor": TREE,
}
trees = st.one_of(
    drawn({**SINGLE_TREES, "RandomForestRegressor": {"bootstrap": YES_OR_NO, **FOREST}, "ExtraTreesRegressor": FOREST}),
    pipelines(drawn({"SimpleImputer": {}}), drawn(SINGLE_TREES)),
)
scaled = pipelines(
    scalers, drawn({**SINGLE_TREES, "HistGradientBoostingRegressor": {"min_samples_leaf": (1,), "max_iter": (1, 3)}})
)
boosting = drawn(
    {
        "GradientBoostingRegressor": {
            "loss": ("squared_error", "absolute_error", "huber", "quantile"),
            "init": (None, "zero"),
            "n_estimators": (1, 5),
            "random_state": (0,),
        },
        "HistGradientBoostingRegressor": {
            "loss": ("squared_error", "absolute_error", "poisson", "gamma"),
            "min_samples_leaf": (1, 5),
            "max_iter": (1, 5),
            "max_bins": (4, 255),
            "categorical_features": (None, [0]),
            "random_state": (0,),
        },
        "AdaBoostRegressor": {"loss": ("linear", "square"), "n_estimators": (1, 5), "random_state": (0,)},
        "BaggingRegressor": {
            "estimator": drawn(SINGLE_TREES),
            "n_estimators": (3,),
            "max_features": (0.5, 1.0),
            "bootstrap_features": YES_OR_NO,
            "random_state": (0,),
        },
    }
)

SVM = {
    "kernel": ("rbf", "linear", "poly", "sigmoid"),
    "gamma": ("scale", "auto", 0.1),
    "degree": (2, 3),
    "coef0": (0.0, 1.0),
    "C": (0.1, 100.0),
    "max_iter": (500,),
}
GAUSSIAN_KERNELS = (
    None,
    ConstantKernel(2.0) * RBF(0.7) + WhiteKernel(0.1),
    Matern(1.5, nu=1.5),
    Matern(nu=0.5),
    RationalQuadratic(alpha=0.5) + DotProduct(),
)
EXPANSIONS: Table = {
    "Nystroem": {"kernel": ("rbf", "poly"), "n_components": (1, 5), "random_state": (0,)},
    "RBFSampler": {"gamma": ("scale", 1.0), "n_components": (1, 9), "random_state": (0,)},
    "KernelPCA": {"n_components": (1, 3), "kernel": ("rbf", "poly", "sigmoid"), "random_state": (0,)},
}
kernel = st.one_of(
    drawn(
        {
            "SVR": {"epsilon": (0.0, 0.1), **SVM},
            "NuSVR": SVM,
            "KernelRidge": {
                "alpha": (1e-3, 1.0),
                "kernel": ("rbf", "laplacian", "poly", "sigmoid", "cosine"),
                "gamma": (None, 0.1),
            },
            "GaussianProcessRegressor": {
                "kernel": GAUSSIAN_KERNELS,
                "alpha": (1e-10, 1e-2),
                "normalize_y": YES_OR_NO,
                "optimizer": (None,),
            },
        }
    ),
    pipelines(drawn(EXPANSIONS), ridge),
)

METRICS = ("minkowski", "cityblock", "chebyshev")
neighbors = drawn(
    {
        "KNeighborsRegressor": {
            "n_neighbors": (1, 2, 5),
            "weights": ("uniform", "distance"),
            "algorithm": ("auto", "brute", "kd_tree", "ball_tree"),
            "metric": METRICS,
        },
        "RadiusNeighborsRegressor": {
            "radius": (1.0, 30.0),
            "weights": ("uniform", "distance"),
            "algorithm": ("auto", "brute", "kd_tree"),
            "metric": METRICS,
        },
    }
)

perceptron = drawn(
    {
        "MLPRegressor": {
            "hidden_layer_sizes": ((), (3,), (5, 4)),
            "activation": ("identity", "logistic", "tanh", "relu"),
            "solver": ("lbfgs", "adam"),
            "max_iter": (10,),
            "random_state": (0, 1),
        }
    }
)
neural = st.one_of(perceptron, pipelines(drawn({"StandardScaler": {}}), perceptron))

THREE = {"n_estimators": (3,), "random_state": (0,)}
ensembles = drawn(
    {
        "VotingRegressor": {
            "estimators": ([("a", Ridge()), ("b", make_pipeline(StandardScaler(), Lasso(0.01)))],),
            "weights": (None, [0.2, 3.0]),
        },
        "StackingRegressor": {
            "estimators": ([("a", Ridge()), ("b", SVR(max_iter=500))],),
            "final_estimator": (LinearRegression(),),
            "cv": (2,),
            "passthrough": YES_OR_NO,
        },
        "BaggingRegressor": {"estimator": (Ridge(),), "max_features": (0.5, 1.0), **THREE},
        "AdaBoostRegressor": {"estimator": (Ridge(),), **THREE},
        "GradientBoostingRegressor": {"init": (Ridge(),), **THREE},
        "MultiOutputRegressor": {"estimator": (Ridge(), SVR(max_iter=500))},
        "RegressorChain": {"estimator": (Ridge(),), "order": (None, "random"), "random_state": (0,)},
        "TransformedTargetRegressor": {
            "regressor": (Ridge(),),
            "transformer": (None, StandardScaler(), MinMaxScaler()),
        },
    }
)

smooth = pipelines(
    drawn(
        {
            **SCALERS,
            "PCA": {"n_components": (1, None), "whiten": YES_OR_NO},
            "IncrementalPCA": {"n_components": (1,)},
            "TruncatedSVD": {"n_components": (1,), "random_state": (0,)},
            "FactorAnalysis": {"n_components": (1,), "max_iter": (20,)},
            "GaussianRandomProjection": {"n_components": (1, 3), "random_state": (0,)},
            "PowerTransformer": {"standardize": YES_OR_NO},
            "Normalizer": {"norm": ("l1", "l2", "max")},
            "KMeans": {"n_clusters": (1, 3), "n_init": (1,), "max_iter": (10,), "random_state": (0,)},
            "VarianceThreshold": {},
            "SelectKBest": {"score_func": (f_regression,), "k": (1,)},
        }
    ),
    ridge,
)
stepped = pipelines(
    drawn(
        {
            "KBinsDiscretizer": {
                "n_bins": (2, 5),
                "encode": ("onehot", "onehot-dense", "ordinal"),
                "strategy": ("uniform", "quantile", "kmeans"),
                "quantile_method": ("averaged_inverted_cdf",),
                "random_state": (0,),
            },
            "Binarizer": {"threshold": (0.0, 7.25)},
            "OneHotEncoder": {"handle_unknown": ("ignore",), "drop": (None, "first"), "min_frequency": (None, 3)},
            "OrdinalEncoder": {"handle_unknown": ("use_encoded_value",), "unknown_value": (-1, -7)},
            "QuantileTransformer": {"n_quantiles": (3, 10), "output_distribution": ("uniform", "normal")},
            "SplineTransformer": {"n_knots": (2, 4), "degree": (1, 3), "extrapolation": ("constant", "linear")},
            "SimpleImputer": {"strategy": ("mean", "median", "most_frequent"), "add_indicator": YES_OR_NO},
            "RandomTreesEmbedding": {"n_estimators": (1, 3), "max_depth": (2,), "random_state": (0,)},
        }
    ),
    ridge,
)
isotonic = drawn({"IsotonicRegression": {"increasing": (True, False, "auto"), "out_of_bounds": ("nan", "clip")}})
