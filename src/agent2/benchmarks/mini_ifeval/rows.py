"""Reads IFEval's own `input_data.jsonl`, so that the published prompts can be played and scored.

The file is not part of this project. Its rows hold `key`, `prompt`, `instruction_id_list` and `kwargs`.
"""

from pathlib import Path

import msgspec

from agent2.errors import ConfigError
from agent2.files import numbered_lines
from agent2.records import Item, JsonValue, Split
from agent2.scorers.constraints.instructions import read_instructions


class _Row(msgspec.Struct, frozen=True):
    key: int
    prompt: str
    instruction_id_list: list[str]
    kwargs: list[dict[str, JsonValue]]


def read_ifeval_rows(path: Path, split: Split = Split.DEV) -> list[Item]:
    """The items of a file, in its order. Raises ConfigError, naming the line, for one that cannot be used."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give IFEval's input_data.jsonl") from error
    return [_item(line, f"{path}:{number}", split) for number, line in numbered_lines(data)]


def _item(line: bytes, where: str, split: Split) -> Item:
    try:
        row = msgspec.json.decode(line, type=_Row)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{where}: is not a row of IFEval's input_data.jsonl ({error})") from error
    instructions = read_instructions(row.instruction_id_list, row.kwargs, where)
    return Item(
        id=f"ifeval-{row.key}",
        split=split,
        prompt=row.prompt,
        payload={
            "instruction_id_list": [one.name for one in instructions],
            "kwargs": [dict(one.arguments) for one in instructions],
        },
    )
