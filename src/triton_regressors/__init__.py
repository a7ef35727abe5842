"""Serve scikit-learn regressors with Triton-language kernels on NVIDIA's Triton Inference Server.

    import triton_regressors as tr

    tr.export(model, "model_repository", name="houses", sample=X)
    with tr.TritonServer(["model_repository"]) as server, tr.Client(server.grpc_url) as client:
        tr.verify(client, "houses")
        y = client.predict("houses", X)

    y = tr.load("model_repository/houses").predict(X)  # in this process: arrays, tables, tensors on a GPU

Everything that a user calls or catches is here, and is imported when it is first used: a client needs neither torch nor
scikit-learn. The errors form a tree, see `triton_regressors.errors`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from triton_regressors.errors import MissingExtra, TritonRegressorsError
from triton_regressors.extras import require
from triton_regressors.version import __version__

if TYPE_CHECKING:
    from triton_regressors.clients.client.client import AsyncClient, Client
    from triton_regressors.clients.compare.batching import BatchingConfiguration
    from triton_regressors.clients.compare.compare import compare
    from triton_regressors.clients.compare.errors import ComparisonError, NoAnswers
    from triton_regressors.clients.compare.figures.comparison import Comparison, IncompleteComparison
    from triton_regressors.clients.compare.report.report import write_report
    from triton_regressors.clients.contributions.contributions import Contributions
    from triton_regressors.clients.errors import (
        InferenceError,
        InvalidRequest,
        ModelNotFound,
        RequestCancelled,
        RequestTimeout,
        RowsError,
        ServerError,
        ServerFault,
        ServerUnavailable,
    )
    from triton_regressors.clients.server.triton_server import TritonServer
    from triton_regressors.clients.verify import Verification, verify
    from triton_regressors.errors import RegistryError
    from triton_regressors.exporter.compilation import Export
    from triton_regressors.exporter.errors import ExportError
    from triton_regressors.exporter.export import export
    from triton_regressors.exporter.files.loading import load_estimator
    from triton_regressors.exporter.fleets.fleet import FleetExport, export_fleet
    from triton_regressors.exporter.fleets.update import update_fleet
    from triton_regressors.exporter.lowering.registry import answers, lowers, lowers_inverse, lowers_transform
    from triton_regressors.mlflow.model_registry import log_entry
    from triton_regressors.scoring.errors import ScoringError
    from triton_regressors.scoring.file_scoring import Score, score
    from triton_regressors.scoring.loaded_model import Model, load

__all__ = [
    "AsyncClient",
    "BatchingConfiguration",
    "Client",
    "Comparison",
    "ComparisonError",
    "Contributions",
    "Export",
    "ExportError",
    "FleetExport",
    "IncompleteComparison",
    "InferenceError",
    "InvalidRequest",
    "MissingExtra",
    "Model",
    "ModelNotFound",
    "NoAnswers",
    "RegistryError",
    "RequestCancelled",
    "RequestTimeout",
    "RowsError",
    "Score",
    "ScoringError",
    "ServerError",
    "ServerFault",
    "ServerUnavailable",
    "TritonRegressorsError",
    "TritonServer",
    "Verification",
    "__version__",
    "answers",
    "compare",
    "export",
    "export_fleet",
    "load",
    "load_estimator",
    "log_entry",
    "lowers",
    "lowers_inverse",
    "lowers_transform",
    "score",
    "update_fleet",
    "verify",
    "write_report",
]

_PLACES = {
    "clients.compare.batching": ("BatchingConfiguration",),
    "clients.compare.figures.comparison": ("Comparison", "IncompleteComparison"),
    "clients.compare.errors": ("ComparisonError", "NoAnswers"),
    "clients.compare.report.report": ("write_report",),
    "clients.compare.compare": ("compare",),
    "clients.contributions.contributions": ("Contributions",),
    "clients.errors": (
        *("InferenceError", "InvalidRequest", "ModelNotFound", "RequestCancelled", "RequestTimeout", "RowsError"),
        *("ServerError", "ServerFault", "ServerUnavailable"),
    ),
    "clients.client.client": ("AsyncClient", "Client"),
    "clients.server.triton_server": ("TritonServer",),
    "clients.verify": ("Verification", "verify"),
    "errors": ("RegistryError",),
    "exporter.compilation": ("Export",),
    "exporter.export": ("export",),
    "exporter.errors": ("ExportError",),
    "exporter.files.loading": ("load_estimator",),
    "exporter.fleets.fleet": ("FleetExport", "export_fleet"),
    "exporter.fleets.update": ("update_fleet",),
    "exporter.lowering.registry": ("answers", "lowers", "lowers_inverse", "lowers_transform"),
    "mlflow.model_registry": ("log_entry",),
    "scoring.errors": ("ScoringError",),
    "scoring.file_scoring": ("Score", "score"),
    "scoring.loaded_model": ("Model", "load"),
}
"""The source of each name that is imported when it is first used; the imports above tell type checkers the same."""
_NEEDS = {"clients.compare.report.report": "compare", "scoring.file_scoring": "score"} | dict.fromkeys(
    (
        *("exporter.compilation", "exporter.export", "exporter.files.loading", "exporter.fleets.fleet"),
        *("exporter.fleets.update", "exporter.lowering.registry"),
    ),
    "export",
)


def __getattr__(name: str) -> Any:
    place = next((place for place, names in _PLACES.items() if name in names), None)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if place in _NEEDS:
        require(_NEEDS[place], f"{__name__}.{name}")
    value = getattr(import_module(f"{__name__}.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
