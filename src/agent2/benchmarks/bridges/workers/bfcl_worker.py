"""Episodes of BFCL's multi-turn categories: the package's stateful APIs answer calls, and its checker judges them.

An episode is a list of moves, each a message of the model: `{"calls": [{"name", "arguments"}, ...]}`, or
`{"words": TEXT}`, which ends a turn of the user. Every request carries all moves; APIs that have carried out all but
the last are kept, so nothing is lost where this process is started again.
"""

import ast
import copy
import importlib
import inspect
import json
import keyword
from functools import cache
from pathlib import Path
from typing import Any

from episode_store import EpisodeStore, package_folder, require_prompt
from unchanged import require_unchanged

PACKAGE_SHA256 = "6f3781c92593634a3255f43e0c12bfb83a2bc68d80414c84a236d0a289157c7b"
CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
RELEASE = "BFCL_v4"
PAGE = 20
MAX_STEPS = 20
"""Messages with calls in one turn of the user; the harness gives up on an item that needs more."""
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
SYSTEM = (
    "Do what the user asks in each turn, with calls of the functions. Go on until nothing more can be done, then "
    "answer in words, which ends the turn. If a function or an argument is missing, say so in words and call nothing."
)
REFUSED = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})
"""Names that the package never calls."""
KEPT = 256
"""Episodes whose APIs are kept."""


def describe() -> dict[str, Any]:
    """The categories."""
    require_unchanged(package_folder("bfcl_eval"), PACKAGE_SHA256)
    return {"names": [f"multi_turn_{category}" for category in CATEGORIES]}


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


@cache
def _entries(name: str) -> list[dict[str, Any]]:
    """The rows of a category with their expected calls (`ground_truth`) and functions (`functions`)."""
    data = package_folder("bfcl_eval") / "data"
    require_unchanged(package_folder("bfcl_eval"), PACKAGE_SHA256)
    rows = _lines(data / f"{RELEASE}_{name}.json")
    answers = _lines(data / "possible_answer" / f"{RELEASE}_{name}.json")
    if [row["id"] for row in rows] != [answer["id"] for answer in answers]:
        raise RuntimeError(f"{name}: questions and answers are not of the same items")
    return [{**row, "ground_truth": answer["ground_truth"]} for row, answer in zip(rows, answers, strict=True)]


@cache
def _documented(class_name: str) -> list[dict[str, Any]]:
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

    return _lines(
        package_folder("bfcl_eval") / "data" / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name]
    )


def _functions(entry: dict[str, Any], turn: int) -> list[dict[str, Any]]:
    """What may be called in a turn: of functions that are held back, those of later turns are missing."""
    later = {
        function for start, names in entry.get("missed_function", {}).items() if int(start) > turn for function in names
    }
    documented = [function for name in entry["involved_classes"] for function in _documented(name)]
    return [function for function in documented if function["name"] not in later]


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "name": function["name"],
        "description": function["description"],
        "parameters": _schema(function["parameters"]),
    }
    return {"type": "function", "function": schema}


def _schema(declared: Any) -> Any:
    """A declared type as JSON schema."""
    if not isinstance(declared, dict):
        return declared
    names = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
    schema = dict(declared)
    if isinstance(declared.get("type"), str):
        schema["type"] = names.get(declared["type"], declared["type"])
    if isinstance(declared.get("properties"), dict):
        schema["properties"] = {name: _schema(part) for name, part in declared["properties"].items()}
    if "items" in declared:
        schema["items"] = _schema(declared["items"])
    return schema


def open_set(name: str) -> dict[str, Any]:
    """How many items it has, and how long an episode may be."""
    entries = _entries(name)
    n_messages = max(len(entry["question"]) for entry in entries) * (MAX_STEPS + 1)
    return {
        "compares": False,
        "is_chat": True,
        "max_tokens": 512,
        "max_turns": n_messages,
        "portions": {"test": len(entries)},
    }


def _prompt(entry: dict[str, Any]) -> str:
    """What the item asks, later turns included, which a model sees only when they come."""
    turns = [" ".join(message["content"] for message in turn) or MORE_FUNCTIONS for turn in entry["question"]]
    return "\n\n".join([*turns, f"({entry['id']})"])


def items(name: str, portion: str, start: int) -> list[dict[str, Any]]:
    """A page of items."""
    page = []
    for entry in _entries(name)[start : start + PAGE]:
        opening = [{"role": message["role"], "content": message["content"]} for message in entry["question"][0]]
        page.append(
            {
                "prompt": _prompt(entry),
                "messages": [{"role": "system", "content": SYSTEM}, *opening],
                "tools": [_tool(function) for function in _functions(entry, 0)],
                "reference": json.dumps(_expected_messages(entry)),
            }
        )
    return page


def _expected_messages(entry: dict[str, Any]) -> list[str]:
    """Messages of a model that makes the expected calls."""
    messages = []
    for calls in entry["ground_truth"]:
        if calls:  # in one message, since one item expects more calls in a turn than messages are allowed
            messages.append(json.dumps([_as_call(call, entry) for call in calls]))
        messages.append("That is all for this turn." if calls else "I cannot do that with what I have.")
    return messages


def _as_call(text: str, entry: dict[str, Any]) -> dict[str, Any]:
    """An expected call, written as Python, by the names of its parameters."""
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"{entry['id']}: {text} is no call")
    name = node.func.id
    declared = next(function for function in _functions(entry, len(entry["question"])) if function["name"] == name)
    names = list(declared["parameters"]["properties"])
    arguments = {key: ast.literal_eval(value) for key, value in zip(names, node.args, strict=False)}
    arguments |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return {"name": name, "arguments": arguments}


class BfclEpisode:
    """The APIs of one item, and where its dialogue is."""

    def __init__(self, entry: dict[str, Any]) -> None:
        from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES

        self.entry = entry
        self.apis: dict[str, Any] = {}
        for class_name in entry["involved_classes"]:
            api = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[class_name]), class_name)()
            if class_name not in STATELESS_CLASSES:
                scenario = copy.deepcopy(entry["initial_config"].get(class_name, {}))
                api._load_scenario(scenario, long_context="long_context" in entry["id"])
            self.apis[class_name] = api
        self.turn = self.n_steps = 0
        self.made: list[list[list[str]]] = [[]]
        """Turn x message x call, as the checker reads them."""
        self.is_given_up = False

    @property
    def is_over(self) -> bool:
        """Whether no further message is asked for."""
        return self.is_given_up or self.turn == len(self.entry["question"])

    def apply(self, move: dict[str, Any]) -> dict[str, Any]:
        """What comes back for a message."""
        if self.is_over:
            raise ValueError("the episode is over")
        if "words" in move:
            return self._next_turn()
        self.n_steps += 1
        results, written = [], []
        for call in move["calls"]:
            method = self._method(call["name"])
            if method is None:
                results.append(f"Error during execution: name {call['name']!r} is not defined")
                continue
            results.append(_result(method, call["arguments"]))
            written.append(_written(call))
        if written:
            self.made[-1].append(written)
        self.is_given_up = self.n_steps >= MAX_STEPS + 1
        return {"results": results, "user": None, "tools": None, "is_over": self.is_over}

    def _method(self, name: str) -> Any:
        """The method of an API, offered or held back, as the package finds it; None: no API has it."""
        if name.startswith("_") or name in REFUSED:
            return None
        methods = [getattr(api, name, None) for api in self.apis.values()]
        return next((method for method in reversed(methods) if inspect.ismethod(method)), None)

    def _next_turn(self) -> dict[str, Any]:
        self.turn += 1
        self.n_steps = 0
        if self.is_over:
            return {"results": None, "user": None, "tools": None, "is_over": True}
        self.made.append([])
        message = "\n\n".join(part["content"] for part in self.entry["question"][self.turn])
        is_more = str(self.turn) in self.entry.get("missed_function", {})
        tools = [_tool(function) for function in _functions(self.entry, self.turn)] if is_more else None
        return {"results": None, "user": message or MORE_FUNCTIONS, "tools": tools, "is_over": False}


def _result(method: Any, arguments: dict[str, Any]) -> str:
    try:
        # a copy, as the package makes one by writing a call as text: an API may keep what it is given
        result = method(**copy.deepcopy(arguments))
    except Exception as error:  # boundary: the APIs may raise anything over a model's arguments
        return f"Error during execution: {error}"
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            return str(result)
    return str(result)


def _written(call: dict[str, Any]) -> str:
    """A call as the checker reads it: Python, which it evaluates, so a name that a model chose must stay a name."""
    name, arguments = call["name"], call["arguments"]
    if all(key.isidentifier() and not keyword.iskeyword(key) for key in arguments):
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    return f"{name}(**{arguments!r})"


def _begin(name: str, number: int) -> BfclEpisode:
    return BfclEpisode(_entries(name)[number])


STORE = EpisodeStore(_begin, KEPT)


def score(name: str, portion: str, number: int, prompt_sha256: str, moves: list[dict[str, Any]]) -> dict[str, Any]:
    """The package's verdict on an episode: state and results after each turn, and no call where none is expected."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import (
        multi_turn_checker,
        multi_turn_irrelevance_checker,
    )

    entry = _entries(name)[number]
    require_prompt(name, _prompt(entry), prompt_sha256)
    episode = BfclEpisode(entry)
    for move in moves:
        episode.apply(move)
    expected = entry["ground_truth"]
    if episode.is_given_up or episode.turn != len(expected):
        return {"value": 0.0, "reason": f"ended in turn {episode.turn + 1} of {len(expected)}"}
    before = set(vars(multi_turn_utils))
    try:
        verdicts = (
            multi_turn_checker(episode.made, expected, copy.deepcopy(entry), name, "bridge"),
            multi_turn_irrelevance_checker(episode.made, expected),
        )
    finally:  # the package keeps the APIs of each item among the names of its module, and would find them used
        for leftover in set(vars(multi_turn_utils)) - before:
            delattr(multi_turn_utils, leftover)
    failed = next((verdict for verdict in verdicts if not verdict["valid"]), None)
    if failed is None:
        return {"value": 1.0, "reason": "states and results are the expected ones after every turn"}
    return {"value": 0.0, "reason": f"{failed['error_type']}: {failed['error_message']}"[:300]}


METHODS = {"describe": describe, "open_set": open_set, "items": items, "advance": STORE.advance, "score": score}
