"""The command `explain`, and what else an exported entry with contributions says and answers on a real server."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

from tests.server.snippets import run_snippets
from tests.servers import triton_server
from tests.waiting import wait_for
from triton_regressors.__main__ import main, make_app
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify
from triton_regressors.contribution_game import Game
from triton_regressors.describe.contract import contract_of
from triton_regressors.exporter.export import export
from triton_regressors.kernels.entry import find_entry, read_document, read_golden
from triton_regressors.scoring.loaded_model import load

pytestmark = pytest.mark.server

SEED = np.random.default_rng(0)
ROWS = 60
HOMES = pd.DataFrame(
    {
        "age": SEED.integers(1, 90, ROWS),
        "city": SEED.choice(["Bern", "Oslo", "Rome"], ROWS),
        "size": SEED.normal(2, 0.5, ROWS),
        "unused": SEED.normal(size=ROWS),
    }
)

WIDE = SEED.normal(size=(40, 13))


def model() -> TransformedTargetRegressor:
    """Return a model of the logarithm of its target, with strings, that does not read one of its columns."""
    encoders = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["size", "age"]))
    inner = make_pipeline(encoders, Ridge(0.1))
    y = np.exp(0.01 * HOMES["age"] + 0.4 * HOMES["size"] + 0.3 * (HOMES["city"] == "Oslo"))
    return TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp).fit(HOMES, y)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A server with `homes`, `counted`, `near`, whose contributions are estimated, and `plain`, which has none."""
    repository = tmp_path_factory.mktemp("repository")
    export(model(), repository, name="homes", sample=HOMES, contributions="background", background=HOMES[:30])
    small = Ridge().fit(HOMES[["age"]], HOMES["size"])
    export(small, repository, name="plain", sample=HOMES[["age"]])
    export(small, repository, name="counted", sample=HOMES[["age"]], contributions="background")
    near = KNeighborsRegressor(3).fit(WIDE, WIDE[:, 0] * WIDE[:, 1])
    games = {"contributions": "background", "background": WIDE[:5], "permutations": 10}
    export(near, repository, name="near", sample=WIDE, **games)  # type: ignore[arg-type]
    with triton_server([repository]) as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    HOMES.to_csv(tmp_path / "homes.csv", index=False)
    return tmp_path / "homes.csv"


def explain(server: TritonServer, *arguments: object) -> str:
    command = ["explain", *map(str, arguments), "--url", server.grpc_url]
    done = CliRunner().invoke(make_app(), command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_the_values_are_those_of_the_users_columns(server: TritonServer) -> None:
    """An additive margin gives each column its own part less its mean over the background, one-hot columns together."""
    estimator = model()
    with Client(server.grpc_url) as client:
        found = client.explain("homes", HOMES)
    margin = estimator.regressor_.predict
    own = np.zeros((ROWS, 4))
    for place, name in enumerate(HOMES.columns):
        background = HOMES[:30]
        changed = pd.concat([background.assign(**{name: value}) for value in HOMES[name]])
        own[:, place] = margin(changed).reshape(ROWS, 30).mean(axis=1) - margin(background).mean()
    np.testing.assert_allclose(found.values, own, atol=1e-6)
    np.testing.assert_allclose(found.base_values, margin(HOMES[:30]).mean(), rtol=1e-6)
    np.testing.assert_allclose(found.predictions, estimator.predict(HOMES), rtol=1e-6)
    assert found.columns == tuple(HOMES.columns)
    assert (found.game, found.links, found.told.rows) == ("background", ("exp",), 30)


def test_a_terminal_gets_columns_by_size_and_means_of_many_rows(server: TritonServer, file: Path) -> None:
    shown = explain(server, "homes", file)
    with Client(server.grpc_url) as client:
        found = client.explain("homes", HOMES)
    (first,) = re.findall(r"^row 0: y = exp\(.*\) = (.*)$", shown, re.MULTILINE)
    assert first == f"{found.predictions[0]:.4g}"
    row, _, means = shown.partition("mean |contribution| to y before exp over 60 rows")
    order = [HOMES.columns[place] for place in np.argsort(-np.abs(found.values[0]), kind="stable")]
    assert re.findall(r"^  (\w+) ", row, re.MULTILINE) == [*order, "base"]
    sizes = np.abs(found.values).mean(axis=0)
    by_mean = [HOMES.columns[place] for place in np.argsort(-sizes, kind="stable")]
    assert re.findall(r"^  (\w+) ", means, re.MULTILINE) == by_mean
    assert f"{sizes.max():.4g}" in means
    assert "against 30 background rows; with the base, which is the mean over these rows, they add up to what" in shown
    assert re.search(r"^  unused  +0 +│$", row, re.MULTILINE)  # the command sends no cells of it
    assert explain(server, "homes", file, "--rows", 3).count("\nrow ") == 2


def test_the_metrics_count_explained_rows(server: TritonServer) -> None:
    def counted() -> dict[str, float]:
        with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        told = (re.match(r'triton_regressors_explained_rows_total\{model="(\w+)".* (\S+)$', line) for line in lines)
        return {found[1]: float(found[2]) for found in told if found}

    assert counted().keys() == {"counted", "homes", "near"}
    with Client(server.grpc_url) as client:
        client.predict("counted", HOMES)
        client.explain("counted", HOMES)
        client.explain("counted", HOMES[:7])
        wait_for(lambda: counted()["counted"] >= ROWS + 7)
    assert counted()["counted"] == ROWS + 7


def test_a_condition_and_a_page(server: TritonServer, file: Path, tmp_path: Path) -> None:
    y = model().predict(HOMES)
    middle = float(np.median(y))
    page = tmp_path / "page.html"
    shown = explain(server, "homes", file, "--where", f"y > {middle}", "--html", page)
    chosen = np.flatnonzero(y > middle)
    assert f"row {chosen[0]}: y = " in shown
    assert f"over {len(chosen)} rows" in shown
    made = page.read_text(encoding="utf-8")
    assert made.count("<svg") == 3
    assert made.count("<circle") == len(chosen) * 4
    assert f"row {chosen[0]}: y = " in made
    assert "holds for no row" in explain(server, "homes", file, "--where", "y < 0", "--html", tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_an_entry_without_contributions_says_how_to_export_some(
    server: TritonServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["triton-regressors", "explain", "plain", str(file), "--url", server.grpc_url]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(
        SystemExit, match=r"^Error: Model 'plain' has no output 'contributions': export it with contrib"
    ):
        main()


def test_estimates_have_errors_and_are_verified(server: TritonServer, tmp_path: Path) -> None:
    entry = find_entry(server.repositories[0] / "near")
    asked = load(entry.directory).infer(WIDE, outputs=("contributions", "contributions_error"))
    with Client(server.grpc_url) as client:
        found = client.explain("near", WIDE, where="y > 0")
        checks = verify(client, "near", repository=server.repositories[0]).outputs
    assert found.told.permutations == 10
    assert np.array_equal(found.values, asked["contributions"][found.rows, :-1])
    assert np.array_equal(found.errors, asked["contributions_error"][found.rows, :-1])
    assert [check.name for check in checks if check.within] == ["y", "contributions", "contributions_error"]
    np.save(tmp_path / "rows.npy", WIDE)
    shown = explain(server, "near", tmp_path / "rows.npy")
    assert len(re.findall(r"^  column \d+ .* ±[\d.e-]+ ", shown, re.MULTILINE)) == 13
    assert "estimated from 10 orders of the columns with the standard errors in 'contributions_error'" in shown
    run_snippets(entry.directory, server)


def test_the_contract_says_which_game_and_its_code_asks_for_it(server: TritonServer) -> None:
    entry = find_entry(server.repositories[0] / "homes")
    document = read_document(entry.version_directory)
    contract = contract_of("homes", 1, document, read_golden(entry.version_directory, document))
    text = contract.text(width=10**6)
    says = Game.of(document)
    assert says is not None
    assert "\nContributions\n  " + says.meaning in text
    assert says.meaning in contract.html()
    assert f"# contributions: {says.meaning}\ncurl" in contract.shell
    assert contract.python.endswith(f'    print(client.explain("homes", rows))  # {says.meaning}')
    _, answers = run_snippets(entry.directory, server)
    assert len({each["contributions"].astype(np.float32).tobytes() for each in answers}) == 1
    with Client(server.grpc_url) as client:
        parameter = client.config("homes").parameters["contributions"].string_value
    assert Game.read(parameter) == says


def test_the_next_version_tells_its_own_game(tmp_path: Path) -> None:
    X, y = HOMES[["age", "size"]], HOMES["size"]
    for rows in (10, 20):
        export(Ridge().fit(X, y), tmp_path, name="it", sample=X, contributions="background", background=X[:rows])
    assert '\\"rows\\": 20' in (tmp_path / "it" / "config.pbtxt").read_text()
