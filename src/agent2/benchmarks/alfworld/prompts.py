"""The opening messages of the published games: the ReAct protocol with two solved examples, and a chat without any.

The *form* of the ReAct prompt is the published one (Yao et al. 2022, arXiv:2210.03629): two episodes of the item's
own task type, lines that begin with "> ", thoughts that are answered "OK.", then the game. The *words* are our own: the
episodes were played on generated games (`scripts/write_alfworld_examples.py`), so a score made with them is not one
made with the authors' prompt. Who has their file (`alfworld_3prompts.json`) puts it into the data folder, and it is
used in place of ours; the items' digest on the card tells which.

The authors' file is older than the engine: it says `put X in/on Y` where the engine since alfworld 0.4.0 says
`move X to Y`. Those actions and their replies are translated when the file is read, nothing else; thoughts keep their
words, and replies to `go to` lack the sentence "You arrive at ..." that the engine begins them with.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from agent2.environments.household.game import command_shape
from agent2.environments.household.world import OBSERVATION_SLOT, Protocol, command_of
from agent2.errors import ConfigError, shown
from agent2.records import JsonValue

OWN_PROMPTS = "alfworld_3prompts.json"
"""Name of the published file of examples, below the data folder."""
_PUBLISHED_KEYS: Mapping[str, str] = {
    "pick_and_place_simple": "put",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "look_at_obj_in_light": "examine",
    "pick_two_obj_and_place": "puttwo",
}
_OLD_PUT = re.compile(r"^(> ?)put (\w+ \d+) in/on (\w+ \d+)(?=[ \t]*$)", re.MULTILINE)
_OLD_REPLY = re.compile(r"^You put the (\w+ \d+) in/on the (\w+ \d+)\.", re.MULTILINE)
"""How alfworld before 0.4.0 worded a placement and its reply."""
_REACT = (
    "You solve tasks in a household by writing one line a turn. A line is a command, or a thought that begins with "
    '"think:" and changes nothing. Two tasks that were solved come first.\n\n{first}\n\n{second}\n\n'
    "Now it is your turn. Write the next line only.\n{observation}\n>"
)
_CHAT = (
    "You solve a task in a household. Answer each message with exactly one command and nothing else. Commands: "
    "go to X, open X, close X, take X from Y, move X to Y, clean X with Y, heat X with Y, cool X with Y, use X, "
    "examine X, look, inventory.\n\n{observation}"
)


@cache
def examples() -> dict[str, tuple[str, str]]:
    """Task type -> two solved episodes as texts."""
    records = read_examples()
    by_type: dict[str, list[str]] = {}
    for record in records:
        by_type.setdefault(record["task_type"], []).append(transcript(record["opening"], record["lines"]))
    return {task_type: (texts[0], texts[1]) for task_type, texts in by_type.items()}


def read_examples() -> list[dict[str, JsonValue]]:
    """The packaged episodes: task type, game, opening, and lines of (action, observation)."""
    text = (resources.files("agent2.benchmarks.alfworld") / "examples.json").read_text(encoding="utf-8")
    found: list[dict[str, JsonValue]] = json.loads(text)
    return found


def transcript(opening: str, lines: Sequence[Sequence[str]]) -> str:
    """An episode as the ReAct prompt shows it."""
    return "\n".join([opening, *(f"> {action}\n{observation}" for action, observation in lines)])


def react_opening(task_type: str, texts: tuple[str, str] | None = None) -> list[dict[str, str]]:
    """The one user message that a game of this type begins with. texts: other examples than the packaged ones."""
    first, second = texts or examples()[task_type]
    content = _REACT.replace("{first}", first.strip()).replace("{second}", second.strip())
    return [{"role": "user", "content": content.replace("{observation}", OBSERVATION_SLOT)}]


def chat_opening() -> list[dict[str, str]]:
    """The one user message of the chat protocol: which commands there are, and the game."""
    return [{"role": "user", "content": _CHAT.replace("{observation}", OBSERVATION_SLOT)}]


def published_examples(root: Path) -> dict[str, tuple[str, str]] | None:
    """The authors' own examples in the installed engine's words, if their file lies in the data folder.

    Raises ConfigError for a file that does not hold two examples of each task type, or with a command that the
    installed engine does not know even after translation.
    """
    path = root / OWN_PROMPTS
    if not path.is_file():
        return None
    try:
        texts = json.loads(path.read_text(encoding="utf-8"))
        found = {
            task_type: (
                in_installed_words(str(texts[f"react_{key}_1"])),
                in_installed_words(str(texts[f"react_{key}_0"])),
            )
            for task_type, key in _PUBLISHED_KEYS.items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: is not the published file of ReAct examples ({type(error).__name__}: {error}); "
            "download it again, or remove it to play with the packaged examples"
        ) from error
    for task_type, pair in found.items():
        unknown = [command for text in pair for command in unknown_commands(text)]
        if unknown:
            raise ConfigError(
                f"{path}: an example of {task_type} has the action {shown(unknown[0])}, which the installed engine "
                "does not know; correct that line, or remove the file to play with the packaged examples"
            )
    return found


def in_installed_words(example: str) -> str:
    """An example with its old placements, and the replies to them, as the installed engine words them."""
    return _OLD_REPLY.sub(r"You move the \1 to the \2.", _OLD_PUT.sub(r"\1move \2 to \3", example))


def unknown_commands(example: str) -> list[str]:
    """The actions of an example, without thoughts, that are no command of the installed grammar."""
    lines = [command_of(line, Protocol.REACT) for line in example.splitlines() if line.startswith(">")]
    actions = [line for line in lines if not line.startswith("think:")]
    return [action for action in actions if command_shape().fullmatch(action) is None]
