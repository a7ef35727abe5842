"""The commands `export` and `describe`, as a user types them."""

import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import skops.io
import torch
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from tests.processes import running
from triton_regressors.kernels.entry import find_entry, read_document, sealed, write_document

X = np.random.default_rng(0).normal(size=(60, 4))
y = X @ [1.0, -2.0, 3.0, 0.5] + 5


def run(*arguments, cwd):
    """Run the command line in a process of its own; return its exit code, output and error output."""
    command = [sys.executable, "-m", "triton_regressors", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "160"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("commands")
    polynomial = make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()).fit(X, y)
    skops.io.dump(polynomial, directory / "poly.skops")
    skops.io.dump(BayesianRidge().fit(X, y), directory / "bayes.skops")
    np.save(directory / "rows.npy", X)
    return directory


def test_export_writes_an_entry_and_prints_its_parity(folder):
    code, out, err = run("export", "poly.skops", "--sample", "rows.npy", "--max-queue-delay-us", 100, cwd=folder)
    assert (code, err) == (0, "")
    assert "Wrote poly version 1" in out
    assert re.search(r"input   X  FP32  \[rows, 4\]  in training order\n  output  y  FP32  \[rows, 1\] ", out)
    assert re.search(r"parity  y: largest error \S+ standard deviations on 60 rows from the given sample\n", out)
    assert "triton-regressors serve model_repository\n" in out
    assert out.endswith("triton-regressors describe poly\n")
    assert len(out.splitlines()) <= 15
    document = read_document(folder / "model_repository/poly/1")
    assert [step["op"] for step in document.plan["steps"]] == ["quadratic"]
    assert document.parity.rows == 60
    assert "max_queue_delay_microseconds: 100" in (folder / "model_repository/poly/config.pbtxt").read_text()


CONTRACT = ("Inputs", "Outputs", "Parity with the estimator's own predict", "Ask it from Python", "Ask it from a shell")
PASSES = ("as lowered", "after: fold into expansions", "after: use the quadratic form")


def test_describe_begins_with_the_contract_of_a_model_and_of_its_entry(run_here):
    run_here("export", "poly.skops", "--repository", "here", "--max-batch-size", "7")
    of_file, of_entry, by_name = (
        run_here("describe", *arguments)
        for arguments in (["poly.skops"], ["here/poly"], ["poly", "--repository", "here"])
    )
    assert of_entry == by_name
    assert of_file[1].replace("not exported yet", "version 1") == of_entry[1]
    code, out, err = of_entry
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "poly (Pipeline), version 1"
    assert [line for line in lines if line in CONTRACT] == list(CONTRACT)
    assert not any(title in out for title in PASSES)
    assert len(lines) < 40
    _, out, _ = run_here("describe", "poly", "--repository", "here", "--passes")
    assert out.startswith(of_entry[1])
    for words in (*PASSES, "launches", "bytes"):
        assert words in out[len(of_entry[1]) :]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_describe_tells_of_a_gpu_s_memory_where_it_can(run_here):
    run_here("export", "bayes.skops", "--repository", "measured")
    code, out, err = run_here("describe", "measured/bayes", "--gpu-memory")
    assert (code, out.partition("\n")[0]) == (1, "bayes (BayesianRidge), version 1")
    assert "A GPU's memory cannot be measured here: " in err
    code, _, err = run_here("describe", "bayes.skops", "--gpu-memory")
    assert code == 1
    assert "--gpu-memory is for an entry; export the model first." in err


def test_describe_of_an_entry_imports_no_torch_and_no_scikit_learn(folder):
    run("export", "bayes.skops", cwd=folder)
    code = "import sys; from triton_regressors.__main__ import main; sys.argv[0] = 'triton-regressors'\n"
    code += "try: main()\nfinally: print(sorted({'torch', 'sklearn', 'tritonclient', 'pandas'} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code, "describe", "bayes"], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the standard deviation of the prediction" in done.stdout
    assert 'client.infer("bayes", rows, outputs=["y", "std"])' in done.stdout
    assert done.stdout.endswith("\n[]\n")


def test_describe_of_an_unknown_name_lists_the_entries_that_there_are(run_here, folder):
    run_here("export", "poly.skops", "--repository", "known", "--name", "a")
    run_here("export", "poly.skops", "--repository", "known", "--name", "b")
    (folder / "known" / "notes").mkdir()
    code, out, err = run_here("describe", "c", "--repository", "known")
    assert (code, out) == (1, "")
    assert err == "Error: There is no file c, and no entry of that name in known, which has a, b."
    assert run_here("describe", "c", "--repository", "known/notes")[2].endswith(" in known/notes, which has none.")
    assert run_here("describe", "c", "--repository", "none")[2] == (
        "Error: There is no file c, and no repository none with an entry of that name."
    )


@pytest.mark.parametrize("name", ["[/x]", "[red]", "[bold]m[/bold]", ":smile:"])
def test_names_and_paths_are_printed_as_they_are(run_here, folder, name):
    """They are not markup: an unmatched tag once ended in an error after the entry was written, others vanished."""
    model, repository = f"{name}.skops", f"{name}/models"
    (folder / model).parent.mkdir(exist_ok=True)
    (folder / model).write_bytes((folder / "poly.skops").read_bytes())
    code, out, err = run_here("export", model, "--name", "tags", "--repository", repository, "--sample", "rows.npy")
    assert (code, err) == (0, "")
    assert f"Wrote tags version 1 to {repository}/tags/1: " in out
    assert f"triton-regressors serve {shlex.quote(repository)}\n" in out
    assert f"triton-regressors describe tags --repository {shlex.quote(repository)}\n" in out


@pytest.mark.parametrize("tag", ["[/x]", "[red]", ":smile:"])
def test_describe_prints_what_a_plan_holds_as_it_is(run_here, folder, tag):
    run_here("export", "poly.skops", "--name", "tags", "--repository", "described")
    version = find_entry(folder / "described" / "tags").version_directory
    document = read_document(version)
    first, *_, last = document.stages
    what = replace(first.steps[0], what=f"before {tag} after")
    stages = (replace(first, stage=tag, steps=(what, *first.steps[1:])), replace(last, stage=tag))
    write_document(version, replace(document, stages=stages, parity=replace(document.parity, rows_from=tag)))
    code, out, _ = run_here("describe", "described/tags", "--passes")
    assert code == 0
    for words in (f"after: {tag}", f"before {tag} after", f"rows from {tag}"):
        assert words in " ".join(out.split())


DAMAGED = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-9]), "Error: Cannot read the plan "),
    "flipped": (lambda path: path.write_text(path.read_text().replace("poly", "pony")), "plan.json is not as it was"),
    "emptied": (
        lambda path: path.write_bytes(sealed(path.parent, {})),
        "plan.json does not hold what an export writes",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_describe_of_a_damaged_plan_is_a_sentence(run_here, folder, damage):
    run_here("export", "poly.skops", "--repository", damage)
    spoil, sentence = DAMAGED[damage]
    spoil(folder / damage / "poly" / "1" / "plan.json")
    code, out, err = run_here("describe", f"{damage}/poly")
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert sentence in err
    assert "\n" not in err


def test_ctrl_c_while_it_starts_ends_quietly(folder):
    """Importing scikit-learn, torch and the rest takes seconds."""
    command = [sys.executable, "-X", "importtime", "-m", "triton_regressors", "export", "poly.skops"]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        for line in process.stderr:
            if line.endswith("numpy\n"):  # what follows takes longer
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert all(line.startswith("import time:") for line in err.splitlines())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export", "nothing.skops"], "Error: There is no file nothing.skops."),
        (["export", "n" * 300 + ".skops"], "Error: There is no file nnn"),
        (["describe", "n" * 300], "Error: There is no file nnn"),
        (["export", "poly.skops", "--name", "n" * 300], "Error: The name nnnnnnnnnnnnnnnnnnnn... has 300 characters"),
        (["export", "poly.skops", "--instances", "0"], "Error: instances must be a whole number of at least 1, not 0."),
        (["export", "poly.skops", "--name", "a b"], "Error: The name 'a b' cannot be a model's"),
        (["export", "poly.skops", "--sample", "rows.txt"], "Error: "),
        (["describe", "."], "Error: . is not an entry"),
    ],
)
def test_what_the_user_can_mend_is_one_sentence_and_exit_code_1(run_here, arguments, sentence):
    code, out, err = run_here(*arguments)
    assert code == 1
    assert out == ""
    assert err.startswith(sentence)
    assert "Traceback" not in err


def test_a_process_of_its_own_exits_so_too(folder):
    code, out, err = run("describe", ".", cwd=folder)
    assert (code, out) == (1, "")
    assert err.startswith("Error: . is not an entry")
    assert "Traceback" not in err


def test_an_unknown_option_is_refused_by_name(run_here):
    code, _, err = run_here("export", "poly.skops", "--batch", "3")
    assert code == 2
    assert "--batch" in err


def test_training_rows_are_the_profile_and_what_is_outside_an_output(run_here, folder):
    np.save(folder / "training.npy", np.concatenate([X, X[:1] + 100]))
    options = ("--sample", "rows.npy", "--profile", "training.npy", "--out-of-range", "--observe", "off")
    code, out, err = run_here("export", "poly.skops", "--repository", "watched", *options)
    assert (code, err) == (0, "")
    assert "out_of_range  FP32  [rows, 1]  the number of columns in which a row is unlike the profile" in out
    few = "The profile has only 61 rows. On average 3.2 % of rows like these lie out of the range of a column"
    assert few in out
    assert 'key: "observe"\n  value {\n    string_value: "off"' in (folder / "watched/poly/config.pbtxt").read_text()
    code, out, err = run_here("describe", "poly", "--repository", "watched")
    assert (code, err) == (0, "")
    assert "Served rows are compared with 61 rows" in out
    assert few in " ".join(out.split())
    assert "On average 3.2 % of rows like these lie out of the range of a column, 2 / (61 + 1)." in " ".join(
        out.split()
    )
    assert f"column 3: {X[:, 3].min():.4g}, " in out
    assert f", {X[0, 3] + 100:.4g}." in out
    code, out, err = run_here("export", "poly.skops", "--repository", "watched", "--observe", "sometimes")
    assert (code, err) == (1, "Error: observe must be one of off, sampled, on, not 'sometimes'.")
