"""Hundreds of concurrent clients, each checking its own answers: see soak.py, which does the same for longer."""

import dataclasses
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.server import soak
from tests.server.models import models
from tests.servers import triton_server
from tests.waiting import wait_for
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = pytest.mark.server


def test_300_clients_get_their_own_answers(server: TritonServer) -> None:
    report = soak.soak(server, soak.targets(300), clients=300, seconds=8, bad_share=0.1)
    counts = report.counts
    assert counts.examples == []
    assert (counts.wrong, counts.lost, report.restarts) == (0, 0, 0)
    assert counts.right + counts.refused == counts.sent == report.executed
    assert counts.sent >= 300
    assert 0.05 < counts.refused / counts.sent < 0.15
    assert report.executions < report.executed  # requests shared batches
    assert report.passed()


# The soak notices what it should, which gives the figures above their worth.


def test_it_notices_wrong_answers_and_bad_rows_that_are_answered(server: TritonServer) -> None:
    (target,) = soak.targets(1, ["ridge"])
    nearly = {"y": np.nextafter(np.float32(target.expected["y"]), np.float32(np.inf)).astype(np.float64) * (1 + 1e-6)}
    for changed in (dataclasses.replace(target, expected=nearly), dataclasses.replace(target, model="poisson")):
        report = soak.soak(server, [changed], clients=1, seconds=0.3, bad_share=0, processes=1)
        assert report.counts.wrong == report.counts.sent > 0
        assert not report.passed()


def test_it_notices_lost_answers_and_restarts(tmp_path: Path) -> None:
    models()["ridge"].export(tmp_path)
    (target,) = soak.targets(2, ["ridge"])
    clients = {client: [target.part(client)] for client in range(2)}  # one over each protocol
    with triton_server([tmp_path]) as server:
        urls = {"grpc": server.grpc_url, "http": server.http_url}
        watch = soak.Watch(server)
        counts = soak.run_clients(urls, clients, 0.2, 0.0)
        assert counts.right == counts.sent > 0
        assert watch.restarts() == 0
        ((model_pid, _),) = soak.model_processes(server.pid)
        os.kill(model_pid, signal.SIGKILL)
        wait_for(lambda: watch.restarts() > 0)
        os.kill(server.pid, signal.SIGKILL)
        wait_for(lambda: not server.running)
        assert watch.restarts() > 0
        counts = soak.run_clients(urls, clients, 0.2, 0.0)
        assert counts.lost == counts.sent > 0
