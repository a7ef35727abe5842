"""A server is replaced under load behind a load balancer, as in a rollout of docker/kubernetes."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import yaml
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from tests.docker.balancer import balanced
from tests.docker.process import started
from tests.waiting import wait_for
from triton_regressors import export

pytestmark = pytest.mark.server

DEPLOYMENT = Path(__file__).resolve().parents[2] / "docker/kubernetes/plain/base/deployment.yaml"
POD = yaml.safe_load(DEPLOYMENT.read_text())["spec"]["template"]["spec"]
(SERVER,) = POD["containers"]
OPTIONS = [word for word in SERVER["args"][1:] if not word.startswith("--model-repository=")]
REMOVAL_S = 5.0
"""Seconds for which a balancer goes on sending connections to a pod that is being deleted."""
ROW = np.zeros((1, 10), np.float32)


def over_http(address: str) -> Callable[[], None]:
    """A client that opens a connection for each request."""
    tensor = {"name": "X", "datatype": "FP32", "shape": [1, 10], "data": [0.0] * 10}
    request = urllib.request.Request(
        f"http://{address}/v2/models/ridge/infer", json.dumps({"inputs": [tensor]}).encode(), {"Connection": "close"}
    )

    def ask() -> None:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()

    return ask


def over_grpc(address: str) -> Callable[[], None]:
    """A client that keeps its connection for as long as the server does."""
    client = tritonclient.grpc.InferenceServerClient(address)
    X = tritonclient.grpc.InferInput("X", [1, 10], "FP32")
    X.set_data_from_numpy(ROW)
    return lambda: client.infer("ridge", [X], client_timeout=60) and None


@contextmanager
def load(*clients: Callable[[], None]) -> Iterator[tuple[list[float], list[tuple[float, str]]]]:
    """Run clients that ask one request after another; yield the times of answers, and times and reasons of failures."""
    answers: list[float] = []
    failures: list[tuple[float, str]] = []
    done = threading.Event()

    def work(ask: Callable[[], None]) -> None:
        while not done.wait(0.01):
            try:
                ask()
            except Exception as error:
                failures.append((time.monotonic(), repr(error)))
            else:
                answers.append(time.monotonic())

    threads = [threading.Thread(target=work, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield answers, failures
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("drained", [True, False], ids=["as-deployed", "without-preStop"])
def test_no_request_fails_while_a_server_is_replaced(tmp_path: Path, drained: bool) -> None:
    """Without the preStop hook requests fail: the balancer learns of the end later than the server."""
    export(Ridge().fit(*load_diabetes(return_X_y=True)), tmp_path / "models", name="ridge")
    with (
        started(tmp_path / "models", tmp_path / "old", *OPTIONS) as old,
        started(tmp_path / "models", tmp_path / "new", *OPTIONS) as new,
        balanced(old.http) as http,
        balanced(old.grpc) as grpc,
        load(*[over_http(http.address)] * 3, over_grpc(grpc.address)) as (answers, failures),
    ):
        wait_for(lambda: len(answers) >= 20)  # by the old server alone
        http.endpoints.append(new.http)
        grpc.endpoints.append(new.grpc)

        def remove() -> None:
            http.endpoints.remove(old.http)
            grpc.endpoints.remove(old.grpc)

        removal = threading.Timer(REMOVAL_S, remove)
        removal.start()  # the pod is deleted: its endpoints go, and meanwhile its preStop hook runs
        if drained:
            subprocess.run(SERVER["lifecycle"]["preStop"]["exec"]["command"], check=True)
        old.process.send_signal(signal.SIGTERM)
        old.process.wait(timeout=POD["terminationGracePeriodSeconds"])
        removal.join()
        replaced = len(answers)
        wait_for(lambda: len(answers) >= replaced + 20)
    if drained:
        assert failures == []
    else:
        assert failures
