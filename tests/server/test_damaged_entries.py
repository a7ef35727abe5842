"""A damaged entry does not load on the real Triton server, says why, and harms no other."""

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.server.conftest import CheckAnswers
from tests.server.models import models, rows
from triton_regressors.clients.errors import ServerFault
from triton_regressors.clients.infer import Client
from triton_regressors.clients.server import TritonServer
from triton_regressors.exporter.config import from_pbtxt, to_pbtxt

pytestmark = pytest.mark.server


def change_plan(version: Path, **changes: Any) -> None:
    document = json.loads((version / "plan.json").read_text())
    (version / "plan.json").write_text(json.dumps({**document, **changes}))


def change_weights(version: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    tensors = load_file(version / "weights.safetensors")
    change(tensors)
    save_file(tensors, version / "weights.safetensors")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def widen(version: Path) -> None:
    config = from_pbtxt((version.parent / "config.pbtxt").read_text())
    config.input[0].dims[0] += 1
    for sample in config.model_warmup:
        sample.inputs["X"].dims[0] += 1
    (version.parent / "config.pbtxt").write_text(to_pbtxt(config))


def enlarge(version: Path) -> None:
    config = from_pbtxt((version.parent / "config.pbtxt").read_text())
    config.max_batch_size = 2**31 - 1
    (version.parent / "config.pbtxt").write_text(to_pbtxt(config))


def forget(name: str) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda tensors: tensors.pop(name)


def double(name: str) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda tensors: tensors[name].__imul__(2)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "protocol": (
        lambda version: change_plan(version, protocol=99),
        r"The plan is written in protocol 99; these kernels read protocol 2\.",
    ),
    "missing_array": (
        lambda version: change_weights(version, forget("0.weight")),
        r"The plan and its weights do not fit together: .*'weight'",
    ),
    "truncated": (
        lambda version: truncate(version / "weights.safetensors"),
        r"Cannot read the weights .*weights\.safetensors: .*",
    ),
    "not_json": (lambda version: truncate(version / "plan.json"), r"Cannot read the plan .*plan\.json: .*"),
    "dims": (widen, r"config\.pbtxt must give X the dims \[8\], the features of the plan\."),
    "huge_batch": (
        enlarge,
        r"max_batch_size 2147483647 × 8 features are 17,179,869,176 numbers; at most 268,435,456 can be staged: set "
        r"max_batch_size to 33554432 or less\.",
    ),
    "tampered": (
        lambda version: change_weights(version, double("0.weight")),
        r"On this device output 'y' of the golden rows is .* standard deviations from the estimator's own",
    ),
    "no_golden": (lambda version: (version / "golden.safetensors").unlink(), r".*golden\.safetensors.*"),
}


@pytest.fixture(scope="module")
def load_errors(repository: Path, server: TritonServer, client: Client) -> dict[str, str]:
    """Damage → what loading such an entry says."""
    config = from_pbtxt((repository / "ridge" / "config.pbtxt").read_text())
    for damage, (inflict, _) in DAMAGE.items():
        shutil.copytree(repository / "ridge", repository / damage)
        config.name = damage
        (repository / damage / "config.pbtxt").write_text(to_pbtxt(config))
        inflict(repository / damage / "1")

    def load(damage: str) -> str:
        with pytest.raises(ServerFault) as caught:
            client.load(damage)
        return str(caught.value)

    with ThreadPoolExecutor(2) as threads:
        return dict(zip(DAMAGE, threads.map(load, DAMAGE), strict=True))


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_entry_does_not_load_and_says_why(load_errors: dict[str, str], damage: str) -> None:
    sentence = load_errors[damage]
    assert re.search(DAMAGE[damage][1], sentence), sentence
    assert "\n" not in sentence


def test_damaged_entries_harm_no_other(
    load_errors: dict[str, str], server: TritonServer, client: Client, check_answers: CheckAnswers
) -> None:
    assert load_errors
    assert server.running
    assert not any(client.ready(damage) for damage in DAMAGE)
    check_answers(models()["ridge"], rows(3), client.infer("ridge", rows(3)))
