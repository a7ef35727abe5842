"""Manifolds whose transform places new rows by their neighbours among the training points."""

from __future__ import annotations

import numpy as np
from sklearn.manifold import Isomap, LocallyLinearEmbedding

from triton_regressors.exporter.estimators.neighbors import check_count, find_search, finite
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.products import product
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.kernels.ops.neighbors.barycenter import Barycenter
from triton_regressors.kernels.ops.neighbors.min_plus import MinPlus
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph


@lowers(Isomap)
def lower_isomap(isomap: Isomap, x: Value, builder: Builder) -> Value:
    """The shortest ways to all training points over the row's neighbours, then the projection of a kernel.

    With `g` the ways' lengths and `K = −g² / 2`, centred as in training, `z = K V`; all of it is affine in `g²`. A row
    without a neighbour within the radius, at which scikit-learn raises an error, has infinite ways and answers NaN.
    """
    search = find_search(isomap, isomap.nbrs_, x, builder)
    k, radius = 0, 0.0
    if isomap.n_neighbors is not None:
        k = check_count(isomap, isomap.nbrs_.n_neighbors, search, builder)
    else:
        radius = finite(isomap.nbrs_.radius)
    graph = NeighborGraph(
        search.points, search.factor, k, radius, search.metric, search.p, "distance", absent="infinity"
    )
    ways = builder.add(MinPlus(np.asarray(isomap.dist_matrix_, dtype=np.float64)), builder.add(graph, search.value))
    pca = isomap.kernel_pca_
    eigenvalues, vectors = (np.asarray(a, dtype=np.float64) for a in (pca.eigenvalues_, pca.eigenvectors_))
    vectors = np.divide(vectors, np.sqrt(eigenvalues), out=np.zeros_like(vectors), where=eigenvalues != 0)
    rows, everything = pca._centerer.K_fit_rows_, pca._centerer.K_fit_all_
    intercept = everything * vectors.sum(axis=0) - product(rows, vectors)
    return builder.affine(builder.elementwise(ways, "square"), -0.5 * (vectors - vectors.mean(axis=0)), intercept)


@lowers(LocallyLinearEmbedding)
def lower_locally_linear_embedding(embedding: LocallyLinearEmbedding, x: Value, builder: Builder) -> Value:
    """The mean of the nearest points' places, with the weights that reconstruct the row from those points."""
    search = find_search(embedding, embedding.nbrs_, x, builder)
    k = check_count(embedding, embedding.n_neighbors, search, builder, Barycenter.MAX_NEIGHBORS)
    places = np.asarray(embedding.embedding_, dtype=np.float64)
    return builder.add(Barycenter(search.points, places, k, float(embedding.reg)), search.value)
