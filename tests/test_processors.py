"""Whatever the BLAS: estimators export, to the same bytes, and a row of the interpreter's keeps its bits."""

from concurrent.futures import ThreadPoolExecutor

from tests.processors import tried

CASES = (
    *("stacking-nested", "chain-order", "voting-mixed", "columns-estimator", "pca-whiten-far", "targets-pca-whiten"),
    *("kernel-ridge-linear", "svm-nu-linear", "before-ridge-kernel-pca-poly", "polynomial-3-pca", "scaler-standard"),
)


def test_the_same_under_every_blas() -> None:
    """Under the kernels of machines with AVX2 and of old ones; Matern tables are among the hashes."""
    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(lambda kind: tried(kind, CASES), ("Haswell", "Prescott")))
    assert [report["varying"] for report in reports] == [[], []]
    assert reports[0]["hashes"] == reports[1]["hashes"]
    assert len(reports[0]["hashes"]) > len(CASES)
