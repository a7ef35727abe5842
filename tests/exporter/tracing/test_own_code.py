"""Published forms of own code: exported with the answers of `predict`, or refused by line and reason."""

import warnings

import numpy as np
import pytest

from tests.exporter.tracing.own_code import PUBLISHED
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError

FEWEST_EXPORTED = 34


def test_forty_are_tried_and_most_are_exported() -> None:
    assert len(PUBLISHED) >= 40
    assert sum(not published.refused for published in PUBLISHED.values()) >= FEWEST_EXPORTED


@pytest.mark.parametrize("name", PUBLISHED)
def test_own_code(name: str) -> None:
    published = PUBLISHED[name]
    X, y = published.data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = published.model().fit(X, y)
        if published.refused:
            with pytest.raises(ExportError) as refused:
                compile_estimator(model, sample=X)
            assert all(words in str(refused.value) for words in published.refused), str(refused.value)
            return
        compilation = compile_estimator(model, sample=X)
    assert compilation.report.within, compilation.report.cause
    assert all(np.isfinite(parity.max_error) for parity in compilation.report.judged.values())
