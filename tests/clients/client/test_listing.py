import numpy as np
import pytest

from triton_regressors.clients import errors
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.client.listing import there_is
from triton_regressors.clients.server.triton_server import TritonServer


def row(name: str, version: str = "1", state: str = "READY", reason: str = "") -> dict[str, str]:
    """Return a model's version as a server lists it."""
    return {"name": name, "version": version, "state": state, "reason": reason}


MANY = [row(f"model_{number:02}") for number in range(40)]


@pytest.mark.parametrize(
    ("model", "index", "says"),
    [
        ("house", [], "The server has no models."),
        ("house", [row("rents"), row("houses")], "Models ready there: 'houses', 'rents'."),
        (
            "house",
            [row("rents", "", ""), row("houses"), row("trees", "1", "UNAVAILABLE", "no weights")],
            "Models ready there: 'houses'; not ready: 'rents', 'trees'.",
        ),
        ("house", [row("rents", "", "")], "No model is ready there; not ready: 'rents'."),
        ("houses", [row("houses", "10"), row("houses", "9")], "Versions 9, 10 of 'houses' are ready."),
        (
            "houses",
            [row("houses", "1", "UNAVAILABLE", "unloaded"), row("houses", "2")],
            "Version 2 of 'houses' is ready.",
        ),
        ("houses", [row("houses", "", "")], "'houses' is in the server's repository, but not loaded."),
        (
            "houses",
            [row("houses", "1", "UNAVAILABLE", "unloaded")],
            "'houses' is in the server's repository, but not loaded.",
        ),
        (
            "houses",
            [row("houses", "1", "UNAVAILABLE", "Internal: no weights.")],
            "'houses' is in the server's repository, but not loaded: Internal: no weights.",
        ),
    ],
)
def test_what_there_is(model: str, index: list[dict[str, str]], says: str) -> None:
    assert there_is(model, index) == says


def test_of_many_models_the_nearest_names_are_listed() -> None:
    text = there_is("modl_37", MANY)
    assert "'model_37'" in text
    assert text.count("'model_") == 8
    assert text.endswith(" and 32 more.")


@pytest.mark.server
class TestUnknownModelsOfAServer:
    def test_those_that_there_are_are_listed(self, client: Client) -> None:
        for ask in (client.config, lambda name: client.predict(name, np.ones((1, 2)))):
            with pytest.raises(
                errors.ModelNotFound, match=r"'sum' is not found\. Models ready there: 'spare', 'sums'\.$"
            ):
                ask("sum")

    @pytest.mark.parametrize("connect", ["grpc", "async http"], indirect=True)
    def test_what_is_not_ready_too(self, client: Client, server: TritonServer) -> None:
        operator = Client(server.grpc_url)
        operator.unload("spare")
        try:
            with pytest.raises(errors.ModelNotFound, match=r"Models ready there: 'sums'; not ready: 'spare'\.$"):
                client.predict("sum", np.ones((1, 2)))
            with pytest.raises(errors.ModelNotFound, match=r"'spare' is in the server's repository, but not loaded\.$"):
                client.predict("spare", np.ones((1, 2)))
        finally:
            operator.load("spare")
            operator.close()

    def test_versions(self, client: Client) -> None:
        with pytest.raises(errors.ModelNotFound, match=r"version 2 is not found\. Version 1 of 'sums' is ready\.$"):
            client.predict("sums", np.ones((1, 3)), version=2)

    def test_statistics(self, operator: Client) -> None:
        with pytest.raises(
            errors.ModelNotFound, match=r"'nothing' is not available\. Models ready there: 'spare', 'sums'"
        ):
            operator.statistics("nothing")
