"""The house stands: a room imports only from groups written earlier, never from a sibling."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

from package_source import SOURCE, module_name, sources, trees

LAYERS: list[set[str]] = [
    {"errors", "texts"},
    {"records", "files", "foreign_files", "sampling_keys", "syntax"},
    {"config", "foreign_databases", "installation", "plugins", "stats", "sandbox"},
    {"pictures"},
    {"llm", "executors"},
    {"engines"},
    {"cards", "models", "environments"},
    {"scorers"},
    {"contract", "benchmarks"},
    {"evaluation"},
    {"analysis"},
    {"monitor", "integrity", "training"},
    {"arena", "authoring", "flywheel"},
    {"reports"},
    {"web"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
STANDALONE = {"__init__", "__main__"}
AGENT_PROGRAMS = SOURCE / "arena" / "agents"


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(source: ast.AST) -> set[str]:
    """Rooms of agent2 named by any import statement, those inside functions included."""
    rooms = set()
    for node in ast.walk(source):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "agent2" else [f"agent2.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("agent2.")}
    return rooms - {"__version__"}


def violations(room: str, source: ast.AST) -> list[str]:
    return [
        imported
        for imported in sorted(imported_rooms(source))
        if imported != room and (imported not in LEVEL or LEVEL[imported] >= LEVEL[room])
    ]


MODULES = sorted(path for path in sources() if room_of(path) not in STANDALONE)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_module_imports_only_downwards(path: Path):
    if AGENT_PROGRAMS in path.parents and path.parent != AGENT_PROGRAMS:
        return  # programs of agents are strangers: they use the installed package like anybody
    assert violations(room_of(path), trees()[path]) == []


def test_every_room_has_a_place_in_the_order():
    assert {room_of(path) for path in MODULES} <= set(LEVEL)


def test_an_upward_import_is_noticed():
    assert violations("cards", ast.parse("from agent2.arena.trial_folder import TrialPaths")) == ["arena"]


def test_a_sibling_import_is_noticed_also_inside_a_function():
    assert violations("models", ast.parse("def f():\n    import agent2.cards.writer")) == ["cards"]


def test_modules_load_without_the_heavy_libraries_that_they_do_not_need():
    heavy = {"torch", "transformers", "trl", "matplotlib", "scipy"}
    for room in ("errors", "records", "config", "installation"):
        tree = trees()[SOURCE / f"{room}.py"]
        imported = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        assert not imported & heavy, room


def test_a_class_name_exists_once_in_the_package():
    places: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def imported_modules(module: str) -> set[str]:
    """Modules of ours that a fresh interpreter has loaded after importing this one."""
    program = (
        f"import sys, {module}; print(*(name for name in sys.modules if name.split('.')[0] == 'agent2'), sep='\\n')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize(
    ("module", "at_most"),
    [("agent2.arena.spec", 12), ("agent2.arena.evidence", 16), ("agent2.arena.analysis.verdicts", 18)],
)
def test_records_load_little_but_records(module: str, at_most: int):
    modules = imported_modules(module)
    assert len(modules) <= at_most, sorted(modules)
    assert not {name.split(".")[1] for name in modules if "." in name} & {"benchmarks", "cards", "evaluation", "models"}


def import_graph(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports anywhere, inside functions too. modules: trees by dotted name."""
    graph: dict[str, set[str]] = {}
    for module, tree in modules.items():
        imports: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                imports |= submodules or {node.module}
        graph[module] = imports & modules.keys() - {module}
    return graph


def reachable(graph: dict[str, set[str]], module: str) -> set[str]:
    """All modules that a module imports, directly or through others."""
    reached, pending = set[str](), [module]
    while pending:
        imported = graph[pending.pop()] - reached
        reached |= imported
        pending += imported
    return reached


def test_the_report_of_an_evaluation_imports_nothing_of_training_and_trials_not_even_when_it_is_written():
    graph = import_graph({module_name(path): tree for path, tree in trees().items()})
    modules = reachable(graph, "agent2.reports.eval_pages")
    assert "agent2.reports.eval_charts" in modules, "imported inside the function that draws"
    assert not {module.split(".")[1] for module in modules if "." in module} & {"monitor", "arena", "training"}


def test_the_monitor_loads_without_scipy():
    loaded = "import sys, agent2.monitor.watch, agent2.monitor.readers, agent2.monitor.suspicious"
    program = f"{loaded}; print({{'scipy', 'torch', 'matplotlib'}} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """The longest path of imports. Raises graphlib.CycleError if modules import each other in a circle."""
    chains: dict[str, list[str]] = {}
    for module in graphlib.TopologicalSorter(graph).static_order():
        below = max((chains[imported] for imported in sorted(graph[module])), key=len, default=[])
        chains[module] = [module, *below]
    return max(chains.values(), key=len)


def test_no_chain_of_imports_is_long():
    chain = longest_chain(import_graph({module_name(path): tree for path, tree in trees().items()}))
    assert len(chain) <= 18, " -> ".join(chain)


def test_a_chain_counts_imports_of_submodules_and_inside_functions():
    texts = {
        "agent2.cli": "def main():\n    from agent2.arena import trial\n",
        "agent2.arena": "",
        "agent2.arena.trial": "import agent2.records\nfrom agent2.errors import Fault\n",
        "agent2.records": "from agent2.errors import Fault\n",
        "agent2.errors": "",
    }
    modules = {module: ast.parse(text) for module, text in texts.items()}
    assert longest_chain(import_graph(modules)) == [
        "agent2.cli",
        "agent2.arena.trial",
        "agent2.records",
        "agent2.errors",
    ]
