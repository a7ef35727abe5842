"""Clusterings as transformers: the distance of each row to each centre."""

from __future__ import annotations

from typing import Any

from sklearn.cluster import Birch, BisectingKMeans, KMeans, MiniBatchKMeans

from triton_regressors.exporter.estimators.kernel_approximation import dense, function_of_points, note_points
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers_transform, refuses

CLUSTERINGS = (Birch, BisectingKMeans, KMeans, MiniBatchKMeans)

refuses(
    "it predicts clusters, and only regressors are exported",
    "Put it before a regressor in a Pipeline, which reads its distances to their centres.",
    *CLUSTERINGS,
)


@lowers_transform(*CLUSTERINGS)
def lower_cluster_distances(clustering: Any, x: Value, builder: Builder) -> Value:
    """`z[i] = ‖x − centreᵢ‖`: of the clusters, and in Birch of the subclusters."""
    centres = dense(clustering.subcluster_centers_ if isinstance(clustering, Birch) else clustering.cluster_centers_)
    note_points(x, centres, builder)
    return builder.add(function_of_points(centres, "euclidean", "identity"), x)
