import pytest

from triton_regressors.clients.listing import there_is


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
        ("houses", [row("houses", "10"), row("houses", "9")], "Of 'houses', versions 9, 10 are ready."),
        (
            "houses",
            [row("houses", "1", "UNAVAILABLE", "unloaded"), row("houses", "2")],
            "Of 'houses', version 2 is ready.",
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
