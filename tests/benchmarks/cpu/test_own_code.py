"""The benchmark of models with code of the user's own: its figures and its table."""

import json

import pytest

from benchmarks.cpu import own_code
from benchmarks.figures import tables
from benchmarks.timing import ONE_CALL


@pytest.mark.parametrize("name", own_code.WORKS)
def test_every_model_is_exported_and_measured(name, tmp_path):
    found = own_code.measure(name, (1, 40), ONE_CALL, tmp_path)
    assert [(case["model"], case["rows"]) for case in found] == [(name, 1), (name, 40)]
    document = {"environment": {"device": "A device", "cores": 2, "versions": {}}, "settings": {"quick": False}}
    document = json.loads(json.dumps({**document, "cases": found}))
    for case in document["cases"]:
        for contender, timing in case["contenders"].items():
            timing["median_us"] = 5.0 if contender == own_code.OURS else 12.5
        case["peer_over_ours"] = 2.5
    section = tables.markdown({"a-device": {"own_code": document}})
    assert "5.0 / 12.5, 2.50 ×" in section
