"""One rollout on its page: tokens are shown by their probability, thoughts are folded, hidden items are not shown."""

import re
from dataclasses import replace

from fastapi.testclient import TestClient
from msgspec import structs

from agent2.cards.writer import CardWriter
from agent2.records import SampledToken, Split, Thought
from agent2.web.catalog import Catalog
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.site import Site
from card_builders import make_header, make_record
from web_builders import HOSTILE


def test_kept_tokens_are_shown_by_their_probability_and_never_those_of_hidden_items(tmp_path):
    tokens = [SampledToken(7, "sure", -0.01), SampledToken(8, HOSTILE, -1.0), SampledToken(9, "\n", -9.0)]
    for split in (Split.DEV, Split.TEST_PRIVATE):
        header = make_header()
        protocol = replace(header.protocol, split=split, attempts=1)
        with CardWriter(tmp_path / split.value, replace(header, protocol=protocol)) as writer:
            record = make_record("item-1")
            turn = structs.replace(record.rollout.turns[0], tokens=tokens)
            writer.append(structs.replace(record, rollout=structs.replace(record.rollout, turns=[turn])))
            writer.append(make_record("item-2"))
            writer.close()
    catalog = Catalog(tmp_path)
    client = TestClient(make_view_app(Site(catalog), ReaderGuard("127.0.0.1", None)), base_url="http://127.0.0.1")
    cards = {entry.path.name: entry.id for entry in catalog.scan().entries.values()}
    text = client.get(f"/rollout/{cards['dev']}/0").text
    marks = re.findall(r'class="token (p\d)" title="([^"]*)">([^<]*)<', text)
    assert [mark[:2] for mark in marks] == [
        ("p0", "-0.010 (99%), id 7"), ("p2", "-1.000 (36.8%), id 8"), ("p4", "-9.000 (0.0123%), id 9")
    ]  # fmt: skip
    assert "mean log-probability -3.337, the least likely one 0.0123%" in text and marks[2][2] == "↵"
    assert "<img src=x" not in text and "\x1b" not in text
    assert 'class="drawn"' not in client.get(f"/rollout/{cards['dev']}/1").text, "none were kept"
    assert 'class="drawn"' not in client.get(f"/rollout/{cards['test_private']}/0").text


def test_a_thought_is_folded_above_its_message_found_by_a_search_and_never_shown_of_hidden_items(tmp_path):
    for split in (Split.DEV, Split.TEST_PRIVATE):
        header = make_header()
        protocol = replace(header.protocol, split=split, attempts=1)
        with CardWriter(tmp_path / split.value, replace(header, protocol=protocol)) as writer:
            record = make_record("item-1")
            turn = structs.replace(record.rollout.turns[0], thought=Thought(f"perhaps{HOSTILE}", "<think>", None))
            writer.append(structs.replace(record, rollout=structs.replace(record.rollout, turns=[turn])))
            writer.append(make_record("item-2"))
            writer.close()
    catalog = Catalog(tmp_path)
    client = TestClient(make_view_app(Site(catalog), ReaderGuard("127.0.0.1", None)), base_url="http://127.0.0.1")
    cards = {entry.path.name: entry.id for entry in catalog.scan().entries.values()}
    text = client.get(f"/rollout/{cards['dev']}/0").text
    fold = re.search(r'<details class="thought"><summary>([^<]*)</summary>', text)
    assert fold is not None and fold[1].startswith("thought, ") and fold[1].endswith("characters, never ended")
    assert "perhaps" in text and "<img src=x" not in text
    assert 'class="thought"' not in client.get(f"/rollout/{cards['dev']}/1").text, "it has none"
    assert "perhaps" not in client.get(f"/rollout/{cards['test_private']}/0").text
    listed = client.get(f"/card/{cards['dev']}", params={"q": "perhaps", "in": "turns"}).text
    assert "item-1" in listed and "item-2" not in listed
