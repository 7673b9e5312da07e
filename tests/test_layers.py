"""The house stands: a room imports only from groups written earlier, never from a sibling."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "agent2"

LAYERS: list[set[str]] = [
    {"errors"},
    {"records", "files", "syntax"},
    {"config", "installation", "plugins", "stats", "sandbox"},
    {"llm"},
    {"cards", "models", "environments"},
    {"scorers"},
    {"contract", "benchmarks"},
    {"evaluation"},
    {"monitor", "integrity", "training"},
    {"arena"},
    {"reports"},
    {"web"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
STANDALONE = {"__init__", "__main__"}
AGENT_PROGRAMS = SOURCE / "arena" / "agents"


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(source: str) -> set[str]:
    """Rooms of agent2 named by any import statement, those inside functions included."""
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "agent2" else [f"agent2.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("agent2.")}
    return rooms - {"__version__"}


def violations(room: str, source: str) -> list[str]:
    return [
        imported
        for imported in sorted(imported_rooms(source))
        if imported != room and (imported not in LEVEL or LEVEL[imported] >= LEVEL[room])
    ]


MODULES = sorted(path for path in SOURCE.rglob("*.py") if room_of(path) not in STANDALONE)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_module_imports_only_downwards(path: Path):
    if AGENT_PROGRAMS in path.parents and path.parent != AGENT_PROGRAMS:
        return  # programs of agents are strangers: they use the installed package like anybody
    assert violations(room_of(path), path.read_text()) == []


def test_every_room_has_a_place_in_the_order():
    assert {room_of(path) for path in MODULES} <= set(LEVEL)


def test_an_upward_import_is_noticed():
    assert violations("cards", "from agent2.arena.trial_folder import TrialPaths") == ["arena"]


def test_a_sibling_import_is_noticed_also_inside_a_function():
    assert violations("models", "def f():\n    import agent2.cards.writer") == ["cards"]


def test_modules_load_without_the_heavy_libraries_that_they_do_not_need():
    heavy = {"torch", "transformers", "trl", "matplotlib", "scipy"}
    for room in ("errors", "records", "config", "installation"):
        tree = ast.parse((SOURCE / f"{room}.py").read_text())
        imported = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        assert not imported & heavy, room


def test_a_class_name_exists_once_in_the_package():
    places: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}
