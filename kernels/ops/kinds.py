"""The module of each operation. A plan's `affine` is the class `Affine` of `linear/affine.py`."""

from __future__ import annotations

FAMILIES = {
    "columns": (
        *("columns", "combine", "concatenate", "elementwise", "expression", "float32", "impute", "impute_sequence"),
        *("interval_end", "lookup", "member_choice", "outside", "pool", "power", "row_norm", "scale", "slice"),
        *("stacked_combine", "stacked_expression", "stacked_impute", "stacked_lookup", "stacked_power"),
        *("stacked_scale", "stacked_weighted_median", "weighted_median", "wrap"),
    ),
    "linear": (
        *("affine", "ordered_affine", "piecewise", "piecewise_affine", "polynomial", "polynomial_affine", "quadratic"),
        *("stacked_affine", "stacked_ordered_affine", "stacked_piecewise", "stacked_piecewise_affine"),
        *("stacked_polynomial", "stacked_polynomial_affine", "stacked_quadratic"),
    ),
    "trees": (
        *("linear_leaves", "stacked_linear_leaves", "stacked_symmetric_trees", "stacked_tree_ensemble"),
        *("symmetric_trees", "tree_ensemble"),
    ),
    "neighbors": (
        *("barycenter", "min_plus", "neighbor_graph", "neighbor_imputer", "neighbors", "radius_neighbors"),
        "tree_neighbors",
    ),
    "points": (
        *("pairwise", "pairwise_affine", "squared_norm"),
        *("stacked_pairwise", "stacked_pairwise_affine", "stacked_squared_norm"),
    ),
    "networks": ("dense_layers",),
}
"""The operations of each family by their names in a plan. A family is a folder."""

MODULES = {kind: f"{family}.{kind}" for family, kinds in FAMILIES.items() for kind in kinds}
"""The module of each operation, relative to this folder."""
