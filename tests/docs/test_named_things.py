"""Whatever commands, options, modules and benchmarks docs, help and errors name has to be there."""

import ast
import functools
import importlib
import importlib.util
import re
from pathlib import Path

import pytest
import typer

from agent2.benchmarks import BENCHMARKS
from agent2.cli import app
from agent2.records import Split
from package_source import sources, trees

REPO = Path(__file__).parents[2]
DOCS = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted(REPO.glob("docs/**/*.md"))]
NO_MODULES = {"agent2.header", "agent2.agents", "agent2.bases", "agent2.search_backends", "agent2.suites"} | {
    f"agent2.arena.tiny_{name}" for name in ("arithmetic", "household", "mini")
}
"""Words that look like a module and are a key of a file, a group of entry points, or in the digest of a tiny model."""
CALL = re.compile(r"(?<![\w/.-])agent2 ([a-z][^\n`\"')]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def unknown(text: str, *, is_code: bool) -> list[str]:
    """What a text names of the command line that is not there; is_code: any word behind `agent2` is a command."""
    found = []
    for match in CALL.finditer(text.replace("\\\n", " ")):
        command, name, words = program(), "agent2", match[1].split()
        while words and words[0].strip(".,;:") in getattr(command, "commands", {}):
            word = words.pop(0).strip(".,;:")
            command, name = command.commands[word], f"{name} {word}"
        if hasattr(command, "commands") and words and (is_code or name != "agent2"):
            if re.fullmatch(r"[a-z][a-z-]*", words[0].strip(".,;:")):
                found.append(f"{name}: no command {words[0]!r} in {match[0]!r}")
            continue
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
        if name != "agent2":
            found += [f"{name} has no {option}" for option in OPTION.findall(match[1]) if option not in known]
    return found


@functools.cache
def strings() -> list[tuple[Path, str]]:
    """Every text that a module may print, docstrings included."""
    texts = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
                texts.append((path, "".join(parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append((path, node.value))
    return texts


@functools.cache
def program() -> typer.core.TyperGroup:
    return typer.main.get_command(app)


def test_commands_and_options_in_the_docs_exist():
    for path in DOCS:
        assert unknown(path.read_text(encoding="utf-8"), is_code=True) == [], path


def test_commands_and_options_in_help_and_errors_exist():
    for path, text in strings():
        assert unknown(text, is_code=False) == [], f"{path}: {text[:200]}"


def test_what_is_not_there_is_found():
    assert unknown("run `agent2 evaluate X`", is_code=True)
    assert unknown("agent2 tasks show alfworld --set a=b", is_code=False) == ["agent2 tasks show has no --set"]
    assert unknown("agent2 cards forget CARD", is_code=False)
    assert unknown("agent2 run arithmetic --set a=b", is_code=True) == []


def test_modules_and_names_of_the_package_that_texts_point_at_exist():
    for path in [*DOCS, *sources()]:
        for match in re.finditer(r"\bagent2(?:\.[A-Za-z_]\w*)+", path.read_text(encoding="utf-8")):
            if match[0] not in NO_MODULES:
                assert _exists(match[0].split(".")), f"{path}: {match[0]}"


def _exists(parts: list[str]) -> bool:
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            if importlib.util.find_spec(name) is None:
                continue
        except ModuleNotFoundError:
            continue
        if length == len(parts):
            return True  # not imported: some need an extra
        thing = importlib.import_module(name)
        for attribute in parts[length:]:
            if not hasattr(thing, attribute):
                return False
            thing = getattr(thing, attribute)
        return True
    return False


def test_benchmarks_in_help_texts_are_installed():
    splits = "|".join(Split)
    for path, text in strings():
        for name in re.findall(rf"\b([a-z][a-z0-9_]+):(?:{splits})\b", text):
            assert name in BENCHMARKS or name == "benchmark", f"{path}: {name}"


def test_the_walks_through_the_code_name_at_most_eight_files_each_and_all_are_there():
    page = (REPO / "docs" / "architecture.md").read_text(encoding="utf-8")
    for title in ("Follow one submission", "Follow one rollout"):
        walk = page.split(f"### {title}\n")[1].strip().split("\n\n")[0]
        named = re.findall(r"`([\w/-]+\.py)`", walk)
        assert 5 <= len(set(named)) <= 8, f"{title}: {named}"
        assert [name for name in named if not (REPO / "src" / "agent2" / name).is_file()] == []


def test_the_files_that_the_architecture_names_are_there():
    page = (REPO / "docs" / "architecture.md").read_text(encoding="utf-8")
    roots = (REPO, REPO / "src" / "agent2")
    named = set(re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md|yaml))`", page))
    assert len(named) > 15
    assert [name for name in sorted(named) if not any((root / name).exists() for root in roots)] == []


def test_links_between_pages_lead_to_a_file_and_a_heading_that_are_there():
    pages = [*DOCS, REPO / "CHANGELOG.md", REPO / "benchmarks" / "README.md"]
    assert [fault for page in pages for fault in broken_links(page, page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("link", ["docs/nowhere.md", "docs/cards.md#no-such-heading", "#no-such-heading"])
def test_a_link_to_nowhere_is_found(link):
    text = f"# Here it is\n\n[there]({link}) [here](#here-it-is) [cards](docs/cards.md#regrade)\n```\n[x](code)\n```\n"
    assert broken_links(REPO / "README.md", text) == [f"README.md: {link}"]


def broken_links(page: Path, text: str) -> list[str]:
    """The links of a page that lead to no file, or to no heading of the page that they name."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        is_page = target != page and target.suffix == ".md" and target.is_file()
        words = target.read_text(encoding="utf-8") if is_page else text
        if "://" not in link and not (target.exists() and (not heading or heading in _anchors(words))):
            found.append(f"{page.name}: {link}")
    return found


def _anchors(text: str) -> set[str]:
    """The anchors that a page's headings get."""
    bare = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line) for line in re.findall(r"^#+ +(.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", line.strip().lower()).replace(" ", "-") for line in bare}
