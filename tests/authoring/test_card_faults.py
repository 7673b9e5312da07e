"""Faults of cards: planted ones are found, honest neighbours are not touched."""

import pytest

from agent2.authoring.card_faults import FaultKind, play_shortcuts, played_faults, static_faults
from agent2.authoring.task_cards import TaskCard, read_cards
from agent2.errors import ConfigError
from agent2.evaluation.scoring import ScoringResources


def question(number, prompt, answer, **fields):
    return TaskCard(id=str(number), prompt=prompt, answer=answer, **fields)


def sums(n=30):
    return [question(i, f"What is {13 * i + 7} + {29 * i + 11}?", str(42 * i + 18)) for i in range(n)]


def kinds(cards):
    return {(fault.item, fault.kind) for fault in static_faults(cards)}


def test_honest_cards_of_one_template_have_no_fault():
    assert (
        kinds([*sums(), question("product", "What is 20 * 40?", "800"), question("sum", "What is 21 + 40?", "61")])
        == set()
    )


def test_leaks_repeats_and_two_keys_are_found():
    cards = [
        *sums(),
        question("leak", "What is 900 + 3? (the answer is 903)", "903"),
        question("again", "Please tell me: what is 20 + 40?", "60"),
        question("again2", "What is 20 + 40?", "60"),
        question("two", "what is 7 +  11?", "19"),
    ]
    assert kinds(cards) == {
        ("leak", FaultKind.LEAKED),
        ("again", FaultKind.DUPLICATE),
        ("again2", FaultKind.DUPLICATE),
        ("two", FaultKind.TWO_KEYS),
    }


def test_prompts_that_offer_their_answers_are_no_leaks():
    pairs = [("lead", "cork"), ("iron", "wood"), ("gold", "wool"), ("brass", "paper"), ("steel", "straw")]
    assert kinds([question(i, f"Which is heavier, {a} or {b}?", a) for i, (a, b) in enumerate(pairs)]) == set()


def test_a_conspicuous_option_that_is_right_too_often_is_a_shortcut_and_by_luck_it_is_not():
    def cards(right):
        return [
            question(
                i,
                f"Which word is number {i}?",
                "ABCD"[i % 4 if right else (i + i // 4) % 4],
                options=["far longer than all" if place == i % 4 else f"w{place}{i}" for place in range(4)],
            )
            for i in range(16)
        ]

    assert len([fault for fault in static_faults(cards(True)) if fault.kind is FaultKind.SHORTCUT]) == 16
    assert not any(played.wins for played in play_shortcuts(cards(False)) if "longer" in played.player)


def code_card(name, command, files):
    return TaskCard.model_validate(
        {
            "id": name,
            "prompt": "fix it",
            "initial_state": {"files": {"a.py": "x = 1\n"}},
            "success_verifier": {"type": "command", "command": command, "files": files},
            "solution": {"a.py": "x = 2\n"},
        }
    )


def test_verifiers_that_pass_on_undone_work_are_found_and_a_sound_one_is_not():
    in_process = {"check.py": "import a\nassert a.x == 2\n"}
    apart = {"check.sh": "python -c 'import a; print(a.x)' | grep -q 2\n"}
    cards = [
        code_card("passes", "true", {}),
        code_card("ends early", "python check.py", in_process),
        code_card("sound", "sh check.sh", apart),
        code_card("unsolvable", "false", {}),
    ]
    found = {(fault.item, fault.kind): fault.reason for fault in played_faults(cards, ScoringResources())}
    assert found.keys() == {
        ("passes", FaultKind.WEAK_VERIFIER),
        ("ends early", FaultKind.WEAK_VERIFIER),
        ("unsolvable", FaultKind.UNSOLVABLE),
    }
    assert "the empty patch" in found["passes", FaultKind.WEAK_VERIFIER]
    assert "ends at once" in found["ends early", FaultKind.WEAK_VERIFIER]


def test_a_harbor_folder_and_a_repo_beside_its_card_are_read(tmp_path):
    task = tmp_path / "cards" / "hello"
    for name, text in {
        "task.toml": '[metadata]\ndifficulty = "hard"\ncategory = "files"\n[agent]\ntimeout_sec = 120.0\n',
        "instruction.md": "Write hello.txt.",
        "environment/Dockerfile": "FROM x\n",
        "environment/a.txt": "a\n",
        "tests/test.sh": "test -f hello.txt\n",
        "repo/b.txt": "b\n",
    }.items():
        path = task / name if not name.startswith("repo") else tmp_path / "cards" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "cards" / "z.yaml").write_text(
        "{id: z, prompt: p, initial_state: {repo: repo}, success_verifier: {type: command, command: 'true'}}\n"
    )
    (tmp_path / "two.yaml").write_text("# two\n- {prompt: p, answer: 1, date: 2026-11-01}\n- {prompt: q, answer: 2}\n")
    assert [card.answer for card in read_cards(tmp_path / "two.yaml")] == ["1", "2"]
    harbor, own = read_cards(tmp_path / "cards")
    assert (harbor.difficulty, harbor.task_type, harbor.budget.max_minutes) == ("hard", "files", 2.0)
    assert harbor.initial_state.files == {"a.txt": "a\n"}
    assert harbor.success_verifier.files == {"tests/test.sh": "test -f hello.txt\n"}
    assert own.initial_state.files == {"b.txt": "b\n"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"prompt": "p"}', "compares with an answer"),
        ('{"prompt": "p", "answer": 1, "split": "secret"}', "is not a split"),
        ('{"prompt": "p", "answer": 1, "difficulty": "heavy"}', "difficulty"),
        ('{"prompt": "p", "answer": "E", "options": ["x", "y"]}', "neither an option"),
        ('{"prompt": "p", "success_verifier": {"type": "unit_tests"}}', "needs a command"),
        ('{"prompt": "p", "answer": 1, "process_checks": ["no_bugs"]}', "is not a process check"),
        ('{"prompt": "p", "answer": 1}\n{"prompt": "p", "answer": 1}', "give each card its own"),
        (
            '{"prompt": "p", "initial_state": {"repo": "../.."}, "success_verifier": {"type": "command", '
            '"command": "x"}}',
            "outside",
        ),
        ("[1", "cannot be read as jsonl"),
    ],
)
def test_wrong_cards_are_refused_with_their_place(text, sentence, tmp_path):
    (tmp_path / "cards.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_cards(tmp_path / "cards.jsonl")
