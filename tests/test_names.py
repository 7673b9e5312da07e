"""Names say what they hold, docstrings name what exists, and a module's docstring has one headline."""

import ast
import functools
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent2.environments.search.corpus import KIND
from agent2.plugins import group
from package_source import SOURCE, module_name, trees

ALLOWED = Path(__file__).parent / "vague_names.txt"
VAGUE = frozenset(
    re.findall(
        r"\w+",
        """asked begun both drawn each found given kept known least left made most one other own played read rest said
        seen shown some stuff there thing things told waiting wanted what who words""",
    )
)
"""As names of variables they say nothing about what is held."""
FILE_ENDINGS = frozenset(
    re.findall(r"\w+", "css csv db html j2 js json jsonl lock log md parquet py sqlite toml txt yaml yml zip zst")
)
FOREIGN_IDS = re.compile(r"PAPERS|DESIGN\.md|REQUIREMENTS|\b[A-Z]\d{2}\b(?!\d)")
"""Of lists that readers of the package don't have."""
FLOATS = re.compile(r"\b(?:F|I|U|BF)(?:16|32|64)\b")
"""Types of numbers as safetensors spells them."""


@functools.cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Every module of the package by its dotted name."""
    return {module_name(path): (path, tree) for path, tree in trees().items()}


def bindings(node: ast.AST, function: str = "-") -> Iterator[tuple[str, str]]:
    """(function or class, name) of every variable, parameter and field; `-` stands for the module."""
    inner = function
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inner = node.name if function == "-" else f"{function}.{node.name}"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield function, node.id
    elif isinstance(node, ast.arg):
        yield function, node.arg
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield function, node.name
    for child in ast.iter_child_nodes(node):
        yield from bindings(child, inner)


def vague_names(source: ast.AST) -> set[tuple[str, str]]:
    return {(function, name) for function, name in bindings(source) if name in VAGUE}


def test_no_variable_has_a_vague_name_but_those_on_the_list_which_only_shrinks():
    allowed = {tuple(line.split()) for line in ALLOWED.read_text("utf-8").splitlines() if not line.startswith("#")}
    vague = {
        (path.relative_to(SOURCE).as_posix(), *name) for path, tree in modules().values() for name in vague_names(tree)
    }
    assert sorted(vague - allowed) == [], "call it what it is in the field's words: row, message, reason, score ..."
    assert sorted(allowed - vague) == [], f"no longer needed in {ALLOWED.name}"


def test_vague_parameters_loop_variables_fields_and_captures_are_noticed():
    source = """
class Finding:
    what: str
def check(found, *rest, **other):
    for each in found:
        [one for one in each]
    with open(found) as read: pass
    try: pass
    except OSError as told: pass
    match found:
        case [kept, *left]: pass
    lambda said: (made := said)
what_is_left = 1
"""
    in_check = ("found", "rest", "other", "each", "one", "read", "told", "kept", "left", "said", "made")
    assert vague_names(ast.parse(source)) == {("Finding", "what"), *(("check", name) for name in in_check)}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of every docstring, those under fields and constants included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


@functools.cache
def names_in(module: str) -> frozenset[str]:
    """Whatever the module defines, imports or sets, at any depth."""
    names = set()
    for node in ast.walk(modules()[module][1]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.rpartition(".")[2])
    return frozenset(names)


@functools.cache
def classes() -> dict[str, str]:
    """The module of each class."""
    return {
        node.name: module
        for module, (_, tree) in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


@functools.cache
def plugin_groups() -> frozenset[str]:
    """Entry-point groups look like modules of the package: of each kind that some module asks for plug-ins of."""
    functions = {node.name for node in modules()["agent2.plugins"][1].body if isinstance(node, ast.FunctionDef)}
    kinds = {
        argument.value
        for _, tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in functions
        for argument in node.args[:1]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    return frozenset(map(group, kinds | {KIND}))


def is_ours(dotted: str) -> bool:
    """Whether a dotted name looks like one of the package's modules or of their names."""
    first, _, last = dotted.partition(".")[0], *dotted.rpartition(".")[1:]
    short = {module.rpartition(".")[2] for module in modules()}
    return last not in FILE_ENDINGS and (first in short or first in classes())


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name of a module or class; the package's, or the standard library's."""
    first, _, last = dotted.partition(".")[0], *dotted.rpartition(".")[1:]
    prefix = dotted.rpartition(".")[0]
    if dotted in plugin_groups() or (first in classes() and last in names_in(classes()[first])):
        return True
    for module in modules():
        if f".{module}".endswith(f".{dotted}"):
            return True
        if f".{module}".endswith(f".{prefix}") and last in names_in(module):
            return True
        outer, _, class_name = prefix.rpartition(".")
        if outer and f".{module}".endswith(f".{outer}") and {class_name, last} <= names_in(module):
            return True
    return first in sys.stdlib_module_names and hasattr(importlib.import_module(first), last)


def dotted_names(text: str) -> Iterable[str]:
    return re.findall(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`", text)


def test_every_name_of_ours_in_a_docstring_exists():
    gone = [
        f"{path.relative_to(SOURCE)}:{line}: `{dotted}`"
        for path, tree in modules().values()
        for line, text in docstrings(tree)
        for dotted in dotted_names(text)
        if is_ours(dotted) and not exists(dotted)
    ]
    assert gone == []


def test_names_that_are_gone_are_noticed_and_files_and_foreign_names_are_not_taken_for_ours():
    assert not exists("agent2.contract.shorthand") and not exists("gates.no_such_name") and not exists("Score.verdict")
    assert exists("agent2.contract.gates") and exists("stats.estimates.wilson") and exists("Score.value")
    assert exists("records.Score.value") and exists("agent2.benchmarks")
    assert [
        dotted for dotted in ("card.json", "numpy.mean", "textworld.logic", "rows.jsonl.zst") if is_ours(dotted)
    ] == []
    assert list(dotted_names("see `a.b`, `c`, `d.e.f()` and `g.h = 1`")) == ["a.b", "d.e.f"]


def repeated_sentences(docstring: str) -> list[str]:
    sentences = [sentence.strip() for sentence in re.split(r"(?<=[.:])\s+", docstring)]
    return sorted({sentence for sentence in sentences if len(sentence) > 25 and sentences.count(sentence) > 1})


def test_a_module_has_a_docstring_of_one_headline_that_repeats_no_sentence():
    headlines: dict[str, str] = {}
    for module, (path, tree) in modules().items():
        docstring = ast.get_docstring(tree)
        assert docstring, f"{path}: no docstring"
        assert repeated_sentences(docstring) == [], path
        headline, _, rest = docstring.partition("\n")
        assert not rest or not rest.split("\n")[0].strip() or headline[-1] not in ".", f"{path}: {headline}"
        assert headlines.setdefault(headline, module) == module, f"{module} and {headlines[headline]}: one headline"


def test_a_sentence_that_is_there_twice_is_noticed():
    text = "What a decision is made of. It covers no costs.\n\nWhat a decision is made of. And more."
    assert repeated_sentences(text) == ["What a decision is made of."]


def test_no_text_of_the_package_refers_to_lists_that_its_readers_do_not_have():
    references = [
        f"{path.relative_to(SOURCE)}:{line}: {identifier}"
        for path, tree in modules().values()
        for line, text in docstrings(tree)
        for identifier in FOREIGN_IDS.findall(FLOATS.sub("", text))
    ]
    assert references == []
