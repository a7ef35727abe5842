"""A damaged entry does not load on the real Triton server, says why, and harms no other.

The server starts a process for each entry, which takes seconds: it loads each kind of damage once, and the rest is
loaded in this process.
"""

import dataclasses
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tritonclient.grpc import model_config_pb2

from tests.server.conftest import CheckAnswers
from tests.server.in_process import loaded
from tests.server.models import models, rows
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import ServerFault
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.entry import GOLDEN, PLAN, WEIGHTS, read_document, write_document
from triton_regressors.model_config import from_pbtxt, to_pbtxt

pytestmark = pytest.mark.server


def forge_plan(version: Path, **changes: Any) -> None:
    """Change the plan, and the digests to fit, as only a deliberate change would."""
    document = read_document(version, check_files=False)
    write_document(version, dataclasses.replace(document, plan={**document.plan, **changes}))


def forge(version: Path, file: str, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    """Change the arrays in a file, and the digests so that they fit."""
    tensors = load_file(version / file)
    change(tensors)
    save_file(tensors, version / file)
    forge_plan(version)


def forge_tolerance(version: Path) -> None:
    document = read_document(version)
    parity = dataclasses.replace(document.parity, tolerance=1e300)
    write_document(version, dataclasses.replace(document, parity=parity))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def flip_digit(version: Path) -> None:
    content = (version / PLAN).read_text()
    (version / PLAN).write_text(re.sub(r'("max_error": \d\.\d*)\d', r"\g<1>0", content, count=1))
    assert (version / PLAN).read_text() != content


def configure(version: Path, change: Callable[[Any], Any]) -> None:
    config = from_pbtxt((version.parent / "config.pbtxt").read_text())
    change(config)
    (version.parent / "config.pbtxt").write_text(to_pbtxt(config))


def enlarge(config: Any) -> None:
    config.max_batch_size = 2**31 - 1


def widen(config: Any) -> None:
    config.input[0].dims[0] += 1
    for sample in config.model_warmup:
        sample.inputs["X"].dims[0] += 1


def retype(config: Any) -> None:
    config.input[0].data_type = model_config_pb2.TYPE_FP64
    for sample in config.model_warmup:
        sample.inputs["X"].data_type = model_config_pb2.TYPE_FP64


def pop(name: str) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda tensors: tensors.pop(name)


def double(name: str) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda tensors: tensors[name].__imul__(2)


def no_rows(tensors: dict[str, np.ndarray]) -> None:
    tensors.update({name: array[:0] for name, array in tensors.items()})


CHANGED = r"%s is not as it was exported: its SHA-256 is not the one in plan\.json"
DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "weights_bit": (lambda version: flip(version / WEIGHTS, -8), CHANGED % r"weights\.safetensors"),
    "no_golden": (
        lambda version: (version / GOLDEN).unlink(),
        r"golden\.safetensors is missing: the version was exported with it",
    ),
    **{
        f"{module.partition('/')[2]}_broken": (
            lambda version, module=module: truncate(version / f"kernels/{module}.py"),
            CHANGED % rf"kernels/{module}\.py",
        )
        for module in ("plan/plan", "format/inputs", "format/parity", "format/records")
    },
    "digit": (flip_digit, r"plan\.json is not as it was exported: its SHA-256 is not the one it states"),
    "not_json": (lambda version: truncate(version / PLAN), r"Cannot read the plan .*plan\.json: .*"),
    "protocol": (
        lambda version: forge_plan(version, protocol=99),
        r"The plan is written in protocol 99; these kernels read protocols 3 and 4\.",
    ),
    "missing_array": (
        lambda version: forge(version, WEIGHTS, pop("0.weight")),
        r"The plan and its weights do not fit together: .*'weight'",
    ),
    "other_weights": (
        lambda version: forge(version, WEIGHTS, double("0.weight")),
        r"On this device output 'y' of the golden rows is .* standard deviations from the estimator's own",
    ),
    "no_golden_rows": (lambda version: forge(version, GOLDEN, no_rows), r"golden\.safetensors has no rows; at least 1"),
    "any_answer": (forge_tolerance, r"plan\.json has the tolerance 1e\+300; it must lie between 0 and 1"),
    "dims": (
        lambda version: configure(version, widen),
        r"config\.pbtxt must give X the type FP32 and the dims \[8\], the features of the plan\.",
    ),
    "input_type": (
        lambda version: configure(version, retype),
        r"config\.pbtxt must give X the type FP32 and the dims \[8\], the features of the plan\.",
    ),
    "huge_batch": (
        lambda version: configure(version, enlarge),
        r"max_batch_size 2147483647 × 8 features are 17,179,869,176 numbers; at most 268,435,456 can be staged: set "
        r"max_batch_size to 33554432 or less\.",
    ),
    "output_dims": (
        lambda version: configure(version, lambda config: config.output[0].dims.__setitem__(0, 2)),
        r"config\.pbtxt must give the output y TYPE_FP32 and the dims \[1\]\.",
    ),
    "output_name": (
        lambda version: configure(version, lambda config: setattr(config.output[0], "name", "z")),
        r"config\.pbtxt names the output 'z'; the plan has y\.",
    ),
}

SERVED = (
    *("weights_bit", "plan_broken", "not_json", "other_weights"),
    *("dims", "input_type", "huge_batch", "output_dims", "output_name"),
)
"""Cases for the real server: damage to each kind of file, and to all configuration that it reads itself."""


def damaged(repository: Path, damage: str) -> Path:
    """Write a damaged copy of an entry and return its directory."""
    config = from_pbtxt((repository / "ridge" / "config.pbtxt").read_text())
    entry = Path(shutil.copytree(repository / "ridge", repository / damage))
    config.name = damage
    (entry / "config.pbtxt").write_text(to_pbtxt(config))
    DAMAGE[damage][0](entry / "1")
    return entry


@pytest.fixture(scope="module")
def load_errors(repository: Path, server: TritonServer, client: Client) -> dict[str, str]:
    """Damage → the message of loading such an entry."""
    for damage in SERVED:
        damaged(repository, damage)

    def load(damage: str) -> str:
        with pytest.raises(ServerFault) as caught:
            client.load(damage)
        return str(caught.value)

    with ThreadPoolExecutor(2) as threads:
        return dict(zip(SERVED, threads.map(load, SERVED), strict=True))


@pytest.mark.parametrize("damage", SERVED)
def test_a_damaged_entry_does_not_load_and_says_why(load_errors: dict[str, str], damage: str) -> None:
    sentence = load_errors[damage]
    assert re.search(DAMAGE[damage][1], sentence), sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage not in SERVED])
def test_damage_in_this_process(repository: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(repository / "ridge", tmp_path / "ridge")
    with loaded(tmp_path / "ridge"):  # which is how the harness loads an entry that is whole
        pass
    with pytest.raises(Exception, match=DAMAGE[damage][1]) as caught, loaded(damaged(tmp_path, damage)):
        pass
    assert "\n" not in str(caught.value)


def test_damaged_entries_harm_no_other(
    load_errors: dict[str, str], server: TritonServer, client: Client, check_answers: CheckAnswers
) -> None:
    assert load_errors
    assert server.running
    assert not any(client.ready(damage) for damage in SERVED)
    check_answers(models()["ridge"], rows(3), client.infer("ridge", rows(3)))
