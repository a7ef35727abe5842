"""The picture of imports: no circle, no arrow upward, exporter and clients side by side.

__main__, demo          the program
commands                the command line
triton_regressors       the public face
scoring                 an entry's answers without a server, by the rules of clients
advise     deploy       a model's times on this machine, with exporter; an entry's files for a cluster, with clients
exporter   clients      estimator → entry; entry → answers
describe   mlflow       an entry's contract in words; models from MLflow and entries to it
errors, tables, ...     what all of these share, and kernels, which knows nothing of the rest

Inside a part of the package a folder is a room. A module that stands beside folders, and a door, is a room of its own.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import triton_regressors

PACKAGE = "triton_regressors"
ROOT = Path(triton_regressors.__file__).parent
FACE, SHARED = "the face", "shared"
FOLDERS = ("clients", "commands", "exporter", "kernels", "scoring", "tables")
MAY_IMPORT = {
    "kernels": {"kernels"},
    SHARED: {SHARED, "kernels"},
    "describe": {"describe", "kernels", SHARED},
    "mlflow": {"mlflow", "kernels", SHARED},
    "exporter": {"exporter", "describe", "kernels", SHARED},
    "clients": {"clients", "kernels", SHARED},
    "advise": {"advise", "exporter", "kernels", SHARED},
    "deploy": {"deploy", "clients", SHARED},
    "scoring": {"scoring", "clients", "kernels", SHARED},
    FACE: {"exporter", "clients", "scoring", "mlflow", SHARED},
    "commands": {
        *{"commands", "exporter", "clients", "scoring", "describe", "advise", "mlflow", "deploy", "kernels", SHARED}
    },
    "demo": {FACE, "exporter", "clients", "kernels", SHARED},
    "__main__": {"commands", SHARED},
}
A_FAMILY = {"plan", "numerics", "cpu", "format"}
ROOMS = {
    "kernels": {
        "format": set(),
        "ops.kinds": set(),
        "cpu": set(),
        "numerics": {"format"},
        "entry": {"format"},
        "plan": {"entry", "format", "numerics", "ops.kinds"},
        "ops.columns": A_FAMILY,
        "ops.linear": A_FAMILY,
        "ops.trees": A_FAMILY,
        "ops.neighbors": {*A_FAMILY, "ops.linear"},
        "ops.points": {*A_FAMILY, "ops.linear"},
        "ops.networks": {*A_FAMILY, "ops.linear"},
        "ops.games": {"plan", "format"},
        "engine": {"plan", "cpu", "format"},
        "serving": {"engine", "format"},
        "backend": {"serving", "engine", "plan", "entry", "format"},
    },
    "exporter": {
        "errors": set(),
        "boosters.fitted": set(),
        "lowering": {"boosters.fitted", "errors"},
        "passes": {"lowering"},
        "boosters": {"lowering", "errors"},
        "tracing": {"lowering"},
        "estimators": {"boosters", "passes", "lowering", "tracing", "errors"},
        "evidence": {"boosters.fitted", "lowering", "errors"},
        "contributions": {"passes", "evidence", "lowering", "errors"},
        "files": {"boosters", "lowering", "errors"},
        "publish": {"errors"},
        "compilation": {"evidence", "lowering"},
        "compile": {"contributions", "compilation", "evidence", "passes", "lowering", "errors"},
        "export": {"compile", "compilation", "evidence", "publish", "errors"},
        "fleets": {"export", "compile", "compilation", "publish", "lowering", "errors"},
    },
    "clients": {
        "errors": set(),
        "page": set(),
        "contributions": {"page", "errors"},
        "client": {"contributions", "errors"},
        "rows": {"client", "errors"},
        "server": {"client", "errors"},
        "verify": {"client", "errors"},
        "compare.errors": set(),
        "compare.batching": {"compare.errors"},
        "compare.load": {"compare.errors", "client", "errors"},
        "compare.figures": {"compare.load", "compare.batching", "compare.errors", "client"},
        "compare.session": {"compare.batching", "compare.errors", "client", "errors"},
        "compare.report": {"compare.figures", "compare.load", "compare.errors", "page"},
        "compare.compare": {
            *{"compare.report", "compare.figures", "compare.load", "compare.session", "compare.batching"},
            *{"compare.errors", "server", "rows", "client"},
        },
    },
}
"""The rooms of a part of the package, and the rooms that each may import besides itself.

An operation is imported by its name in a plan, which `kernels/ops/kinds.py` looks up. No room of kernels/ names a
family except the two with linear maps inside. The lowerings in `exporter/estimators/` register themselves.
"""

TYPES_OF_EACH_OTHER = {(f"{PACKAGE}.exporter.lowering.registry", f"{PACKAGE}.exporter.lowering.builder")}
"""Imported for annotations alone: a lowering, which the builder asks the registry for, takes a builder."""


def modules() -> dict[str, Path]:
    """Return every module of the package by its name."""
    found = {}
    inside = (*MAY_IMPORT, "tables")
    for folder in (ROOT, *(ROOT / name for name in inside if (ROOT / name).is_dir())):
        for path in folder.glob("*.py") if folder == ROOT else folder.rglob("*.py"):
            parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(name: str) -> Iterator[tuple[str, str]]:
    """Yield every module of the package that a module imports, and where: "top", "function" or "types"."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST, where: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, where) for alias in child.names if alias.name in MODULES)
            elif isinstance(child, ast.ImportFrom):
                above = package.split(".")[: package.count(".") + 2 - child.level] if child.level else []
                base = ".".join([*above, *([child.module] if child.module else [])])
                for alias in child.names:
                    module = f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base
                    if module in MODULES:
                        yield module, where
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from visit(child, "types")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from visit(child, "types" if where == "types" else "function")
            elif not isinstance(child, ast.expr):
                yield from visit(child, where)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), "top")


ARROWS = {name: set(imported(name)) for name in MODULES}


def layer(name: str) -> str:
    """Return the part of the package that a module belongs to."""
    part = name.split(".")[1] if "." in name else FACE
    return part if part in MAY_IMPORT else SHARED


def test_the_walk_sees_what_it_should():
    assert len(MODULES) > 100
    assert (f"{PACKAGE}.kernels.format.errors", "top") in ARROWS[f"{PACKAGE}.kernels.plan.plan"]  # relative
    assert (f"{PACKAGE}.clients.server.triton_server", "function") in ARROWS[f"{PACKAGE}.commands.serve"]
    assert (f"{PACKAGE}.clients.client.client", "types") in ARROWS[PACKAGE]


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_no_arrow_leads_upward_or_to_the_side(part):
    """Imports inside functions and for annotations count too."""
    upward = {
        f"{name} → {other}"
        for name, arrows in ARROWS.items()
        for other, _ in arrows
        if layer(name) == part and layer(other) not in MAY_IMPORT[part]
    }
    assert upward == set()


def room(name: str) -> str:
    """Return the room that a module stands in: itself if it is one, or else its folder."""
    _, part, *path = name.split(".")
    return ".".join(path if ".".join(path) in ROOMS[part] else path[:-1])


PARTS = {part: [name for name in MODULES if layer(name) == part and name.count(".") > 1] for part in ROOMS}


@pytest.mark.parametrize("part", ROOMS)
def test_every_module_stands_in_a_room(part):
    assert {room(name) for name in PARTS[part]} == set(ROOMS[part])


@pytest.mark.parametrize(("part", "place"), [(part, place) for part, rooms in ROOMS.items() for place in rooms])
def test_no_wall_is_broken(part, place):
    """Imports inside functions and for annotations count too."""
    through = {
        f"{name} → {other}"
        for name in PARTS[part]
        for other, _ in ARROWS[name]
        if room(name) == place and layer(other) == part and room(other) not in ROOMS[part][place] | {place}
    }
    assert through == set()


@pytest.mark.parametrize("part", ROOMS)
def test_every_door_in_a_wall_is_used(part):
    used = {(room(name), room(other)) for name in PARTS[part] for other, _ in ARROWS[name] if layer(other) == part}
    assert {(place, other) for place, others in ROOMS[part].items() for other in others} <= used


@pytest.mark.parametrize("part", ROOMS)
def test_the_rooms_stand_on_floors(part):
    tuple(TopologicalSorter(ROOMS[part]).static_order())  # a circle raises here


def test_there_is_no_circle():
    """Imports inside functions and for annotations count too."""
    graph = {
        name: {other for other, where in arrows if where != "types" or (name, other) not in TYPES_OF_EACH_OTHER}
        for name, arrows in ARROWS.items()
    }
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_nothing_in_the_package_imports_what_stands_beside_it():
    """The gallery, the benchmarks, the pages and the tests take from the package, and it nothing from them."""
    beside = {"gallery", "benchmarks", "docs", "tests"}
    found = set()
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found |= {f"{name} → {other}" for other in names if other.partition(".")[0] in beside}
    assert found == set()


def test_imports_inside_functions_are_those_that_have_a_reason():
    """Imports inside functions are not visible at a module's head; each is listed here with its reason."""
    found = {
        (name.removeprefix(f"{PACKAGE}."), other.removeprefix(f"{PACKAGE}."))
        for name, arrows in ARROWS.items()
        for other, where in arrows
        if where == "function" and layer(name) not in ("commands", "__main__")  # all of theirs: to start at once
    }
    of_entries = {arrow for arrow in found if arrow[0] in ("kernels.entry", "kernels.backend")}  # checked before use
    assert found - of_entries == {
        ("advise.trial", "exporter.evidence.oracle"),  # which brings scikit-learn, of no use to an entry
        ("advise.trial", "exporter.lowering.estimator"),
        ("advise.trial", "exporter.lowering.lower"),
        ("exporter.export", "exporter.publish.config"),  # importing it does without tritonclient's protobuf
        ("exporter.export", "exporter.publish.repository"),
        ("exporter.tracing.trace", "exporter.tracing.polars_frames"),  # which brings polars
        ("clients.compare.compare", "clients.rows"),  # which brings pandas
        ("kernels.engine.program", "kernels.engine.member_order"),  # which only fleets carry
        ("kernels.engine.runner", "kernels.engine.fleet_executor"),  # which few entries carry
        ("kernels.format.inputs", "kernels.format.text_steps"),  # which few entries carry
        ("kernels.ops.networks.int8_fused", "kernels.ops.networks.int8_hopper"),  # brings Gluon, of use to few GPUs
        ("scoring.loaded_model", "scoring.model_instance"),  # which brings torch
    }
    assert {other.partition(".")[0] for _, other in of_entries} <= {"kernels"}
