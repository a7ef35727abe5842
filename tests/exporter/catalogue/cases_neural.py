"""Cases of neural networks."""

from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import Ridge
from sklearn.neural_network import BernoulliRBM, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from tests.exporter.catalogue.case import add
from tests.exporter.data import Data, column_target, counts, in_float32, linnerud, several_targets, small


def mlp(layers: int | tuple[int, ...], **more: Any) -> MLPRegressor:
    """Return a network of hidden layers of these widths that takes no time to fit."""
    return MLPRegressor(hidden_layer_sizes=layers, max_iter=5, random_state=0, **more)


for activation in ("identity", "logistic", "tanh", "relu"):
    family = "affine" if activation == "identity" else "steps"
    network = mlp((8, 3), activation=activation)
    add(f"mlp-{activation}", family, make_pipeline(StandardScaler(), network), small)
    add(f"mlp-{activation}-targets", family, make_pipeline(StandardScaler(), network), several_targets)
    poisson = mlp((4,), activation=activation, loss="poisson")
    add(f"mlp-{activation}-poisson", "link" if activation == "identity" else "steps", poisson, counts)
for name, layers in {
    "one-unit": (1,),
    "narrowing": (1, 5, 1),
    "deep": (6,) * 7,
    "wide": (100,),
    "wide-deep": (70, 40, 3),
    "number": 5,
}.items():
    add(f"mlp-{name}", "steps", make_pipeline(StandardScaler(), mlp(layers)), small)
add("mlp-no-layer", "affine", make_pipeline(StandardScaler(), mlp(())), small)
add("mlp-no-layer-poisson", "link", mlp((), loss="poisson"), counts)
add("mlp-lbfgs", "steps", make_pipeline(StandardScaler(), mlp((5,), solver="lbfgs")), small)
add(
    "mlp-early-stopping",
    "steps",
    make_pipeline(StandardScaler(), mlp((5,), early_stopping=True)),
    small,
)
add("mlp-sgd", "steps", make_pipeline(StandardScaler(), mlp((5,), solver="sgd")), linnerud)
add("mlp-column-target", "steps", mlp((4,)), column_target)
add(
    "mlp-targets-poisson",
    "steps",
    mlp((4,), loss="poisson"),
    lambda: (counts()[0], np.column_stack([counts()[1]] * 2)),
)
add("mlp-float32", "steps", make_pipeline(StandardScaler(), mlp((5, 4))), in_float32(small))
add(
    "mlp-of-scaled-target",
    "steps",
    TransformedTargetRegressor(make_pipeline(StandardScaler(), mlp((5,))), transformer=StandardScaler()),
    small,
)
add(
    "mlp-bagging",
    "steps",
    BaggingRegressor(make_pipeline(StandardScaler(), mlp((5,))), 2, max_features=3, random_state=0),
    small,
)


def huge() -> Data:
    """`small` in thousands, where every activation saturates."""
    X, y = small()
    return 1000 * X, y


for activation in ("logistic", "tanh", "relu"):
    add(f"mlp-{activation}-huge", "steps", mlp((6, 4), activation=activation), huge)

add("rbm", "steps", make_pipeline(MinMaxScaler(), BernoulliRBM(4, n_iter=2, random_state=0), Ridge()), small)
add(
    "rbm-twice",
    "steps",
    make_pipeline(
        MinMaxScaler(), BernoulliRBM(6, n_iter=2, random_state=0), BernoulliRBM(3, n_iter=2, random_state=1), Ridge()
    ),
    small,
)
