"""Own documents are searched in a benchmark of data alone; what cannot be searched is refused with its place."""

import shutil

import pytest

from agent2.benchmarks import load_benchmark, name_inside
from agent2.benchmarks.home import players_of, world_mounts
from agent2.benchmarks.outside import allow
from agent2.environments.faults import FaultOutcome, fault_events
from agent2.environments.search.corpus import documents_digest
from agent2.errors import ConfigError
from agent2.evaluation.check import check_benchmark
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.scoring import score_played
from agent2.records import Split
from plugin_builders import write_rows

YAML = """\
name: handbook
version: "1.0"
files: {train: train.jsonl}
documents: pages
prompt: "{question}"
answer: answer
scorer: cited_answer
environment: {name: search}
max_turns: 8
"""
PAGES = {
    "archive.md": "The archive is below the hall. The librarian and the night guard may open it.",
    "people/guard.txt": "Oren is the night guard. He has 12 keys.",
    "people/librarian.txt": "Mira is the librarian.",
}
QUESTIONS = [
    ("Who may open the archive?", "the librarian; the night guard"),
    ("Who is the night guard?", "Oren"),
    ("How many keys does Oren have?", "12"),
    ("Which day was the archive founded on?", "unknown"),
]


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.fixture
def handbook(tmp_path):
    return write_handbook(tmp_path / "handbook")


def write_handbook(folder, text=YAML, questions=QUESTIONS):
    for name, page in PAGES.items():
        (folder / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pages" / name).write_text(page)
    write_rows(folder / "train.jsonl", [{"question": question, "answer": answer} for question, answer in questions])
    (folder / "benchmark.yaml").write_text(text)
    return folder


def all_items(benchmark):
    return [
        item
        for split in (Split.TRAIN, Split.DEV)
        for item in benchmark.items(split, benchmark.count(split, None), None)
    ]


def play_actions(folder, question, *actions):
    """What the world said, and the score, of actions in order."""
    benchmark = load_benchmark(str(folder))
    (item,) = [candidate for candidate in all_items(benchmark) if candidate.prompt == question]
    ((_, rollout),) = play_by(
        lambda attempt, world, chat: actions[len(chat) // 2 - 1],
        [Attempt(item, 0, 0)],
        benchmark.environment,
        len(actions),
    )
    return [turn.observation for turn in rollout.turns], benchmark.scorer().score(item, rollout)


def refusal(folder):
    with pytest.raises(ConfigError) as refused:
        all_items(load_benchmark(str(folder)))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_references_are_found_in_the_documents_and_an_empty_answer_is_worth_nothing(handbook):
    report = check_benchmark(load_benchmark(str(handbook)))
    assert report.is_sound and sum(report.counts.values()) == 4
    assert [check.detail for check in report.checks if check.name == "reference answers score 1.0"] == ["4 of 4"]


def test_a_reference_that_no_document_says_any_more_fails_the_check(handbook):
    page = handbook / "pages" / "people" / "guard.txt"
    page.write_text(page.read_text().replace("12 keys", "many keys, 112 or so"))
    report = check_benchmark(load_benchmark(str(handbook)))
    (check,) = [check for check in report.checks if check.name == "reference answers score 1.0"]
    assert check.ok is False and check.detail.startswith("3 of 4") and "0 of 1 values are said there" in check.detail


@pytest.mark.parametrize(
    ("question", "actions", "value"),
    [
        (1, ["search[night guard]", "open[people/guard.txt]", "answer[oren | people/guard.txt]"], 1.0),
        (1, ["open[people/guard.txt]", "answer[Oren]"], 0.0),
        (1, ["answer[Oren | people/guard.txt]"], 0.0),
        (1, ["open[people/guard.txt]", "answer[Oren | people/guard.txt; nowhere]"], 0.0),
        (1, ["open[archive.md]", "answer[Oren | archive.md]"], 0.0),
        (1, ["open[people/guard.txt]", "answer[Oren; Mira | people/guard.txt]"], 0.0),
        (0, ["open[archive.md]", "answer[the night guard; the librarian | archive.md]"], 1.0),
        (0, ["open[archive.md]", "answer[the librarian | archive.md]"], 0.0),
        (3, ["open[archive.md]", "answer[unknown | archive.md]"], 1.0),
        (3, ["answer[unknown]"], 0.0),
        (2, ["open[people/guard.txt]", "answer[1 | people/guard.txt]"], 0.0),
    ],
)
def test_an_answer_counts_if_it_is_right_and_read_on_the_pages_that_it_cites(handbook, question, actions, value):
    assert play_actions(handbook, QUESTIONS[question][0], *actions)[1].value == value


def test_the_filters_of_results_and_answers_are_settings(handbook):
    question, search = QUESTIONS[1][0], "search[night guard of Norvik]"
    observations, _ = play_actions(
        handbook, question, search, "open[people/guard.txt]", "answer[Mira | people/guard.txt]"
    )
    assert "archive.md: " in observations[0] and len(observations) == 3
    (handbook / "benchmark.yaml").write_text(
        YAML.replace("{name: search}", "{name: search, k: 2, min_relevance: 0.5, critic_rounds: 1}")
    )
    wrong = "answer[Mira | people/guard.txt]"
    observations, score = play_actions(
        handbook, question, search, "open[people/guard.txt]", wrong, "answer[Oren | people/guard.txt]"
    )
    assert (
        observations[0].count(": ") == 2
        and "the cited pages do not say 'Mira'" in observations[2]
        and score.value == 1.0
    )
    (handbook / "benchmark.yaml").write_text(YAML.replace("{name: search}", "{name: search, min_relevance: 0.9}"))
    assert play_actions(handbook, question, search)[0] == ["no results"]


def test_tools_fail_in_a_share_of_the_episodes_and_who_tries_again_is_right(handbook, tmp_path):
    steady = load_benchmark(str(handbook))
    faulty = load_benchmark(str(write_handbook(tmp_path / "faulty", f"{YAML.replace('8', '14')}fault_rate: 0.5\n")))
    assert [item.id for item in all_items(faulty)] == [item.id for item in all_items(steady)]
    assert faulty.environment_version() == f"{steady.environment_version()}+faults-0.5"
    attempts = [Attempt(item, k, k) for item in all_items(faulty) for k in range(20)]
    rollouts = list(
        play_by(lambda attempt, world, chat: world.ask_expert(), attempts, faulty.environment, faulty.max_turns)
    )
    events = [fault_events(rollout) for _, rollout in rollouts]
    assert 25 <= sum(bool(rollout_events) for rollout_events in events) <= 55
    assert {event.outcome for rollout_events in events for event in rollout_events} == {FaultOutcome.RECOVERED}
    assert {scored.score.value for scored in score_played(iter(rollouts), faulty.scorer())} == {1.0}


def test_a_dump_of_lines_gives_the_same_as_a_folder(handbook):
    folder = documents_digest(handbook / "pages")
    rows = [{"id": name, "title": name, "text": page} for name, page in PAGES.items()]
    write_rows(handbook / "pages.jsonl", rows)
    (handbook / "benchmark.yaml").write_text(YAML.replace("documents: pages", "documents: pages.jsonl"))
    assert check_benchmark(load_benchmark(str(handbook))).is_sound
    assert documents_digest(handbook / "pages.jsonl") != folder


def test_the_version_tells_the_documents_and_the_filters_and_not_where_they_are(handbook, tmp_path):
    first = load_benchmark(str(handbook))
    moved = write_handbook(tmp_path / "elsewhere", YAML.replace("documents: pages", f"documents: {handbook}/pages"))
    allow(moved, [handbook / "pages"])
    assert load_benchmark(str(moved)).version == first.version
    (handbook / "benchmark.yaml").write_text(YAML.replace("{name: search}", "{name: search, critic_rounds: 1}"))
    filtered = load_benchmark(str(handbook))
    (handbook / "benchmark.yaml").write_text(YAML)
    (handbook / "pages" / "archive.md").write_text("The archive is closed.")
    edited = load_benchmark(str(handbook))
    assert len({benchmark.version for benchmark in (first, filtered, edited)}) == 3
    assert filtered.environment_version() != first.environment_version() == edited.environment_version()


def test_a_task_on_documents_can_be_checked(handbook):
    """The player who reads wins everything, the one who says nothing and the one who takes any step next to nothing."""
    players = players_of(load_benchmark(str(handbook)))
    benchmark = load_benchmark(str(handbook))
    items = all_items(benchmark)

    def mean(player):
        attempts = [Attempt(item, k, k) for item in items for k in range(5)]
        rollouts = play_by(
            lambda attempt, world, chat: player(attempt.item, chat),
            attempts,
            benchmark.environment,
            benchmark.max_turns,
        )
        scores = [scored.score.value for scored in score_played(rollouts, benchmark.scorer())]
        return sum(scores) / len(scores)

    assert mean(players.oracle) == 1.0
    assert mean(players.random(items)) < 0.2 and mean(lambda item, chat: "") == 0.0


def test_a_sandbox_needs_the_index_alone(handbook, tmp_path, monkeypatch):
    outside = load_benchmark(str(handbook))
    (tmp_path / "inside").mkdir()
    name = name_inside(str(handbook), tmp_path / "inside", lambda path: path)
    ((host, mount_name),) = world_mounts(outside).items()
    assert sorted(path.name for path in host.iterdir()) == ["documents.jsonl", "index", "keys.npy", "offsets.npy"]
    (item,) = [candidate for candidate in all_items(outside) if candidate.reference == "Oren"]
    shutil.copytree(host, tmp_path / "worlds" / mount_name)
    shutil.rmtree(handbook)
    monkeypatch.setenv("AGENT2_WORLDS", str(tmp_path / "worlds"))
    inside = load_benchmark(name)
    assert (inside.version, inside.environment_version()) == (outside.version, outside.environment_version())
    world = inside.environment()
    world.reset(item, 0)
    assert world.act("open[people/guard.txt]").observation == PAGES["people/guard.txt"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("documents: pages\n", "", "environment 'search' needs 'documents': a folder of text files"),
        (
            "{name: search}",
            "question",
            "'documents' needs a world that searches them; write environment: search",
        ),
        ("{name: search}", "serch", "unknown environment 'serch'; did you mean 'search'?"),
        ("{name: search}", "{name: search, documents: pages}", "write 'documents' beside 'files'"),
        (
            "{name: search}",
            "{name: search, min_relevence: 0.3}",
            "unknown setting 'min_relevence'; did you mean 'min_relevance'",
        ),
        ("{name: search}", "{name: search, self_rag: true}", "environment 'search': unknown setting 'self_rag'"),
        ("{name: search}", "{name: search, min_relevance: 30}", "min_relevance 30 must be between 0 and 1"),
        ("{name: search}", "{name: search, min_relevance: much}", "min_relevance is 'much'; give a number from 0 to 1"),
        ("{name: search}", "{name: search, critic_rounds: 1.5}", "critic_rounds is 1.5; give an integer"),
        ("{name: search}", "{name: search, k: 0}", "k 0, page_chars 4000, max_tool_calls 12; each must be at least 1"),
        ("max_turns: 8\n", "max_turns: 8\nfault_rate: 3\n", "benchmark.yaml:10: fault_rate"),
        ("max_turns: 8\n", "", "max_turns is 1: a search, a page and an answer are 3 messages"),
        ("documents: pages", "documents: papers", "benchmark.yaml:4: "),
        ("documents: pages", "documents: papers", "papers: cannot be read (No such file or directory)"),
        (
            "files: {train: train.jsonl}",
            f"files: {{train: train.jsonl}}\nsha256: {{documents: {'a' * 64}}}",
            "pages changed after it was pinned",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_that_says_where_and_why(handbook, before, after, message):
    text = (handbook / "benchmark.yaml").read_text()
    assert before in text
    (handbook / "benchmark.yaml").write_text(text.replace(before, after))
    assert message in refusal(handbook)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "there are no documents; give at least one"),
        (
            [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}, {"id": "a", "text": "three"}],
            "pages.jsonl:3: documents of lines 1 and 3 have the same id 'a'",
        ),
        ([{"id": "a", "text": "one"}, {"id": "b"}], "pages.jsonl:2: is not a document"),
        ([{"id": "-", "text": "..."}], "contains a word"),
        ([{"id": "a;b", "text": "one"}], "document id 'a;b' cannot be cited"),
        ([{"id": "", "text": "one"}], "document id '' cannot be cited"),
    ],
)
def test_a_dump_that_cannot_be_searched_is_refused_before_anything_is_played(handbook, lines, message):
    (handbook / "benchmark.yaml").write_text(YAML.replace("documents: pages", "documents: pages.jsonl"))
    write_rows(handbook / "pages.jsonl", lines)
    assert "benchmark.yaml:4: " in refusal(handbook) and message in refusal(handbook)


def test_a_folder_without_documents_is_refused(handbook):
    shutil.rmtree(handbook / "pages")
    (handbook / "pages").mkdir()
    assert "pages: contains no .txt or .md file; put the documents there" in refusal(handbook)
