"""An entry's model in this process, in place of one of a Triton server: its own files, imported in the same way."""

import importlib
import json
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from google.protobuf.json_format import MessageToDict

from triton_regressors.model_config import from_pbtxt
from triton_regressors.scoring.backend_stub import utils


@contextmanager
def loaded(entry: Path, **utilities: Any) -> Iterator[Any]:
    """Load version 1 of an entry as the Python backend does; an answer has `outputs`, arrays by name, or an `error`.

    `utilities` are further attributes of
    the server's module.
    """
    own = {
        "InferenceResponse": lambda output_tensors=(), error=None: types.SimpleNamespace(
            outputs={tensor.name(): tensor.as_numpy() for tensor in output_tensors}, error=error
        ),
    }
    backend = utils(**own | utilities)
    config = MessageToDict(from_pbtxt((entry / "config.pbtxt").read_text()), preserving_proto_field_name=True)
    arguments = {"model_config": json.dumps(config), "model_instance_kind": "CPU", "model_instance_device_id": "0"}
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, backend.__name__, backend)
        patch.syspath_prepend(entry)
        try:
            model = importlib.import_module("1.model").TritonPythonModel()
            model.initialize(arguments)
            yield model
            model.finalize()
        finally:
            torch.set_num_threads(threads)
            for name in [name for name in sys.modules if name == "1" or name.startswith("1.")]:
                del sys.modules[name]
