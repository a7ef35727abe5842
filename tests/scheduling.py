"""Which tests run in the same process, where pytest-xdist runs them in several."""

from xdist.scheduler import LoadFileScheduling

SERVED = ("batch_invariance", "concurrency", "damaged_entries", "entry", "input_types", "isolation", "versions")
COMPILED = ("docs/test_coverage", "exporter/test_cases", "exporter/test_loading", "server/test_parity")
TOGETHER = {
    "catalogue": tuple(f"tests/{name}.py" for name in COMPILED),
    "served": tuple(f"tests/server/test_{name}.py" for name in SERVED),
}
"""Files that fit and compile every case of the catalogue, and files that ask the Triton server of tests/server."""


class ByFile(LoadFileScheduling):
    """Gives all tests of a file to one process, and those of files that are `TOGETHER`, whose fixtures they share."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((name for name, files in TOGETHER.items() if file in files), file)
