"""The Triton server's metrics, for tests without a server."""

from __future__ import annotations

import types
import weakref
from typing import Any


class Server:
    """A stand-in for the server's metrics: `numbers` by name and labels, and `log`; `broken` says what to raise.

    The numbers of `ended` are told no longer, but kept. `orphans` are those whose family was released before them: the
    server forbids that.
    """

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], float] = {}
        self.ended: set[tuple[str, str]] = set()
        self.orphans: list[tuple[str, str]] = []
        self.log: list[str] = []
        self.broken: Exception | None = None

    def utils(self) -> Any:
        server = self

        class Metric:
            def __init__(self, name: str, labels: dict[str, str]) -> None:
                assert labels.pop("model")
                assert labels.pop("version").isdigit()
                assert labels.pop("process").isdigit()
                self.at = name, ",".join(labels.values())
                server.numbers[self.at] = 0
                server.ended.discard(self.at)

            def increment(self, value: float) -> None:
                if server.broken:
                    raise server.broken
                server.numbers[self.at] += value

            def set(self, value: float) -> None:
                server.numbers[self.at] = value

        class MetricFamily:
            COUNTER, GAUGE = "counter", "gauge"

            def __init__(self, *, name: str, description: str, kind: str) -> None:
                if server.broken:
                    raise server.broken
                assert description
                assert kind == ("counter" if name.endswith("_total") else "gauge")
                self.name = name.removeprefix("triton_regressors_")
                self.held: list[tuple[weakref.ref[Metric], tuple[str, str]]] = []

            def Metric(self, *, labels: dict[str, str]) -> Metric:  # noqa: N802
                metric = Metric(self.name, dict(labels))
                self.held.append((weakref.ref(metric), metric.at))
                return metric

            def __del__(self) -> None:
                held = getattr(self, "held", ())
                server.ended.update(at for _, at in held)
                server.orphans += [at for metric, at in held if metric() is not None]

        return types.SimpleNamespace(MetricFamily=MetricFamily, Logger=types.SimpleNamespace(log_warn=self.log.append))
