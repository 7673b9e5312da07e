"""Where the table of facts of a card is (`cards.facts` says what is in it); finding it loads no heavy library."""

import hashlib
from pathlib import Path

from agent2 import installation
from agent2.cards import folder
from agent2.errors import CardError

FACTS = "facts.parquet"
VERSION = 1
"""Goes up when the columns change; part of the name of a cached table."""


def facts_of(path: Path) -> Path:
    """The table of a closed card: its own, else the cached one, made now if there is none.

    Raises CardError for an open or damaged card and for a table that is not the one that the card names.
    """
    card = folder.load_card(path)
    if card.state == "open":
        raise CardError(f"{path}: the card is not finished; resume its evaluation, then query it")
    if FACTS in card.parts:
        file = path / FACTS
        if not file.is_file() or folder.file_digest(file) != card.parts[FACTS]:
            raise CardError(f"{file}: is not the table that {folder.CARD_JSON} names; restore it from a copy")
        return file
    key = hashlib.sha256((path / folder.CARD_JSON).read_bytes()).hexdigest()
    file = installation.facts_dir() / f"{key[:32]}-v{VERSION}.parquet"
    if not file.is_file():
        from agent2.cards.facts import make_facts  # loads pyarrow, which only the first query of a card needs

        make_facts(path, card, file)
    return file
