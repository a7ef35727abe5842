"""Matrix products that do not depend on the kind of processor.

NumPy's own are a BLAS, which sums in another order on each kind of processor; the same estimator shall give the same
weights on all of them. What LAPACK decomposes (the standard deviation of a Gaussian process, FactorAnalysis, SparsePCA,
the inverse of a random projection, Mahalanobis distances) and what scikit-learn itself multiplies in float32 (the mean
of a PCA fitted on float32) may still differ in rounding, as may functions of the C library and the measured errors.
"""

from __future__ import annotations

import numpy as np


def product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return `first @ second` for `[n]` or `[rows, n]` and `[n, columns]`, by loops that NumPy has for all processors.

    It is several times slower than a BLAS.
    """
    answer: np.ndarray = np.einsum("...i,ij->...j", first, second, optimize=False)
    return answer
