"""The fixture of tests that set torch's number of threads."""

import pytest
import torch


@pytest.fixture
def _torch_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
