"""Which tests run in the same process and which begin first, where pytest-xdist runs them in several."""

from typing import Any

from xdist.scheduler import LoadFileScheduling

SERVED = ("batch_invariance", "concurrency", "damaged_entries", "entry", "input_types", "isolation", "versions")
COMPILED = ("docs/test_coverage", "exporter/test_cases", "exporter/test_loading", "server/test_parity")
TOGETHER = {
    "catalogue": tuple(f"tests/{name}.py" for name in COMPILED),
    "served": tuple(f"tests/server/test_{name}.py" for name in SERVED),
}
"""Files that fit and compile every case of the catalogue, and files that ask the Triton server of tests/server."""


LONGEST = (
    *("served", "catalogue", "tests/docs/test_examples.py", "tests/clients/compare/test_compare_server.py"),
    *("tests/docker/test_drain.py", "tests/docker/test_probe.py", "tests/commands/test_serve.py"),
    *("tests/benchmarks/test_large.py", "tests/gallery/test_serve.py", "tests/kernels/test_ops.py"),
    *("tests/server/test_float32.py", "tests/server/test_intervals.py", "tests/server/test_scoring.py"),
    *("tests/exporter/test_float32.py", "tests/clients/test_admin_key.py"),
    *("tests/test_distribution.py", "tests/benchmarks/test_benchmarks.py", "tests/gallery/test_kernels.py"),
    *("tests/clients/test_server.py", "tests/server/test_text.py", "tests/clients/test_strings.py"),
    *("tests/clients/test_startup.py", "tests/clients/test_watch.py", "tests/clients/test_dialogue.py"),
    *("tests/commands/test_export.py", "tests/docker/test_docker_server.py", "tests/kernels/test_gpu_compile.py"),
    *("tests/benchmarks/test_architectures.py", "tests/test_processors.py"),
)
"""Those that take longest, the longest first: one that began last would run alone while other processes have ended."""


class ByFile(LoadFileScheduling):
    """Gives all tests of a file to one process, and those of files that are `TOGETHER`, whose fixtures they share.

    The `LONGEST` begin first. The others follow by the number of their tests.
    """

    def _assign_work_unit(self, node: Any) -> None:
        longest = next((name for name in LONGEST if name in self.workqueue), None)
        if longest is not None:
            self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((name for name, files in TOGETHER.items() if file in files), file)
