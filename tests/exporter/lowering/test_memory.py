"""Memory that nothing uses any more is the system's again."""

import gc

import numpy as np

from benchmarks.served.large_exports import resident
from triton_regressors.exporter.lowering.memory import hand_back


def test_what_lies_between_arrays_that_stay_is_handed_back() -> None:
    hand_back()
    before = resident("VmRSS")
    arrays = [np.ones(4096, dtype=np.uint8) for _ in range(20_000)]
    kept = arrays[::200]
    del arrays
    gc.collect()
    hand_back()
    assert len(kept) == 100
    assert resident("VmRSS") - before < 0.2 * 20_000 * 4096
