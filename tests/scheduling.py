"""The choice of tests that share a process and of those that begin first, for pytest-xdist."""

from typing import Any
from zlib import crc32

from xdist.scheduler import LoadFileScheduling

SERVED = ("batch_invariance", "concurrency", "damaged_entries", "entry", "input_types", "isolation", "versions")
COMPILED = ("docs/test_coverage", "exporter/test_cases", "exporter/files/test_loading", "server/test_parity")
PIECE = " piece "
TOGETHER = {
    "catalogue": tuple(f"tests/{name}.py" for name in COMPILED),
    "served": tuple(f"tests/server/test_{name}.py" for name in SERVED),
}
"""Files that fit and compile every case of the catalogue, and files that ask the Triton server of tests/server."""

SPLIT = {
    "tests/benchmarks/served/test_large_exports.py": 2,
    "tests/docs/test_examples.py": 4,
    "tests/kernels/test_ops.py": 3,
}
"""Files whose tests share nothing that is costly to make, and the number of pieces that they are cut into."""

LONGEST = (
    "served",
    "catalogue",
    "tests/kernels/test_gpu_compile.py",
    "tests/docs/test_examples.py",
    "tests/kernels/test_ops.py",
    "tests/benchmarks/served/test_large_exports.py",
    "tests/gallery/test_kernels.py",
    "tests/clients/compare/test_compare.py",
    "tests/test_distribution.py",
    "tests/gallery/test_serve.py",
    "tests/docker/test_probe.py",
    "tests/server/test_float32.py",
    "tests/kernels/ops/neighbors/test_bounds_far_rows.py",
    "tests/docker/test_drain.py",
    "tests/clients/compare/report/test_report.py",
    "tests/kernels/ops/neighbors/test_neighbors.py",
    "tests/exporter/test_properties.py",
    "tests/commands/test_export.py",
    "tests/server/test_answer_shape.py",
    "tests/server/test_scoring.py",
    "tests/server/test_ties.py",
    "tests/gallery/test_gpu_compile.py",
    "tests/server/test_text.py",
    "tests/benchmarks/bounds/test_architectures.py",
    "tests/server/test_observer.py",
    "tests/gallery/test_puzzles.py",
    "tests/clients/test_strings.py",
    "tests/benchmarks/cpu/test_predict.py",
    "tests/gallery/test_levels_cuda.py",
    "tests/exporter/lowering/test_text_columns.py",
    "tests/gallery/test_commands.py",
    "tests/kernels/ops/neighbors/test_tree_search.py",
    "tests/test_tables.py",
    "tests/gallery/test_hopper_compile.py",
    "tests/clients/client/test_request_flow.py",
    "tests/exporter/estimators/test_catboost.py",
    "tests/scoring/test_score.py",
    "tests/exporter/estimators/test_lightgbm.py",
    "tests/exporter/publish/test_repository.py",
    "tests/exporter/lowering/test_decision_tables.py",
    "tests/docker/test_docker_server.py",
    "tests/exporter/lowering/test_soundness.py",
    "tests/benchmarks/gpu/test_dry_runs.py",
    "tests/commands/test_model_source.py",
    "tests/exporter/evidence/test_input_type.py",
    "tests/clients/server/test_triton_server.py",
    "tests/commands/test_serve.py",
    "tests/kernels/ops/points/test_near_zero.py",
    "tests/scoring/test_load.py",
    "tests/benchmarks/cpu/test_gpu_or_cpu.py",
    "tests/benchmarks/served/test_requests.py",
    "tests/docs/test_pages.py",
    "tests/exporter/estimators/test_float32.py",
    "tests/clients/server/test_startup.py",
    "tests/exporter/evidence/test_ties.py",
    "tests/test_processors.py",
    "tests/commands/test_advise.py",
    "tests/benchmarks/served/test_several_gpus.py",
    "tests/commands/test_lazy_imports.py",
    "tests/clients/client/test_client.py",
    "tests/server/test_intervals.py",
    "tests/kernels/plan/test_plan.py",
    "tests/describe/test_gpu_memory.py",
    "tests/benchmarks/test_models.py",
    "tests/gallery/test_matmul.py",
    "tests/kernels/ops/points/test_pairwise.py",
    "tests/exporter/publish/test_modules.py",
    "tests/exporter/lowering/test_registrations.py",
    "tests/kernels/ops/trees/test_symmetric_trees.py",
    "tests/gallery/test_levels.py",
    "tests/commands/test_deploy.py",
)
"""Those that take longest, the longest first: one that began last would run alone while other processes have ended.

They are all that take more than 20 s beside others on two slow processors. The rest are short enough to end together,
whatever their order.
"""


class ByFile(LoadFileScheduling):
    """Gives all tests of a file to one process, and those of files that are `TOGETHER`, whose fixtures they share.

    The `LONGEST` begin first. The others follow by the number of their tests. Files that are `SPLIT` go in pieces.
    """

    def _assign_work_unit(self, node: Any) -> None:
        waiting: dict[str, str] = {}
        for scope in self.workqueue:
            waiting.setdefault(scope.partition(PIECE)[0], scope)
        longest = next((waiting[name] for name in LONGEST if name in waiting), None)
        if longest is not None:
            self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        """Give a process more tests, unless it has taken the place of one that crashed and still collects them."""
        if node in self.registered_collections:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if file in SPLIT:
            return f"{file}{PIECE}{crc32(nodeid.encode()) % SPLIT[file]}"
        return next((name for name, files in TOGETHER.items() if file in files), file)
