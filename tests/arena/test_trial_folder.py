from agent2.arena.trial_folder import EventLog, read_events


def test_events_come_back_in_order_with_their_fields(tmp_path):
    log = EventLog(tmp_path / "events" / "a.jsonl", clock=lambda: 5.0)
    log.append("one", x=1)
    log.append("two", t=7.5)
    assert read_events(tmp_path / "events" / "a.jsonl").rows == [
        {"t": 5.0, "event": "one", "x": 1},
        {"t": 7.5, "event": "two"},
    ]


def test_a_torn_last_line_is_counted_and_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "a.jsonl"
    EventLog(path).append("one")
    with path.open("ab") as file:
        file.write(b'{"t": 1, "ev')
    EventLog(path).append("two")
    events = read_events(path)
    assert [row["event"] for row in events.rows] == ["one", "two"]
    assert events.n_torn == 1


def test_a_missing_log_is_empty(tmp_path):
    assert read_events(tmp_path / "none.jsonl").rows == []


def test_last_finds_the_latest_row_of_a_name(tmp_path):
    log = EventLog(tmp_path / "a.jsonl")
    log.append("x", n=1)
    log.append("x", n=2)
    log.append("y", n=3)
    events = read_events(tmp_path / "a.jsonl")
    assert events.last("x")["n"] == 2
    assert events.last("z") is None


def test_text_and_numbers_that_json_cannot_hold_are_escaped_not_refused(tmp_path):
    log = EventLog(tmp_path / "a.jsonl")
    log.append("x", text="\udcff", inner={"\ud800": ["\udc80", 10**40]})
    (row,) = read_events(tmp_path / "a.jsonl").rows
    assert row["text"] == "\\udcff"
    assert row["inner"] == {"\\ud800": ["\\udc80", str(10**40)]}


def test_a_line_that_is_no_utf8_is_counted_as_torn(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"event": "a", "x": "\xff"}\n{"event": "b"}\n')
    events = read_events(tmp_path / "a.jsonl")
    assert [row["event"] for row in events.rows] == ["b"]
    assert events.n_torn == 1
