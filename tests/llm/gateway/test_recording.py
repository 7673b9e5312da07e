"""What a record of LLM calls adds up to, from lines and bodies that were written by hand."""

import msgspec
import pytest
import zstandard

from agent2.llm.gateway.recording import (
    EXCHANGES,
    CallEnded,
    CallStarted,
    RecordingError,
    read_body,
    read_exchanges,
    totals,
)
from agent2.llm.records import TokenCounts, WireProtocol


def write(folder, *calls):
    """calls: (kind, outcome, dollars) each."""
    lines = []
    for number, (kind, outcome, dollars) in enumerate(calls, 1):
        tokens = TokenCounts(input=10, output=1) if outcome == "ok" else TokenCounts()
        lines.append(
            CallStarted(
                number, 1.0, WireProtocol.ANTHROPIC, kind, "/v1/messages", "a", "m", False, 9, TokenCounts(5), None
            )
        )
        lines.append(
            CallEnded(
                number, 2.0, outcome, 200, tokens, dollars, True, tokens, dollars, 1.0, 0.5, 0, "", "text/plain", 0
            )
        )
    (folder / EXCHANGES).write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines) + b"\n")
    return folder


@pytest.mark.parametrize("free", [("generate", "failed", 0.0), ("count", "ok", 0.0)])
def test_calls_that_are_free_do_not_make_an_unknown_cost_a_zero(tmp_path, free):
    total = totals(read_exchanges(write(tmp_path, ("generate", "ok", None), free)))
    assert (total.dollars, total.n_unknown_cost) == (None, 1)


def test_calls_that_are_all_free_cost_nothing(tmp_path):
    total = totals(read_exchanges(write(tmp_path, ("generate", "failed", 0.0), ("count", "ok", 0.0))))
    assert (total.dollars, total.n_unknown_cost) == (0.0, 0)


def test_a_cost_that_is_known_in_part_says_of_how_many_calls_it_is_not(tmp_path):
    total = totals(read_exchanges(write(tmp_path, ("generate", "ok", 0.5), ("generate", "ok", None))))
    assert (total.dollars, total.n_unknown_cost) == (0.5, 1)


def test_an_outcome_that_no_gateway_writes_is_damage(tmp_path):
    with pytest.raises(RecordingError, match="exchange 1: the outcome 'splendid' is unknown; restore the file"):
        read_exchanges(write(tmp_path, ("generate", "splendid", 0.0)))


def test_a_body_that_would_fill_the_memory_is_not_unpacked(tmp_path):
    path = tmp_path / "000001.request.zst"
    compressor = zstandard.ZstdCompressor().compressobj(size=2**40)
    path.write_bytes(compressor.compress(b"x" * 2**20) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    with pytest.raises(RecordingError, match="unpacks to more than"):
        read_body(path)
