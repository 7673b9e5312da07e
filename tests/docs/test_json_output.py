"""The page on JSON output against what the commands print."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agent2.cards.writer import CardWriter
from agent2.cli import app
from agent2.contract.decision_record import THRESHOLDS
from agent2.contract.findings import GateRule
from card_builders import make_header, make_record

PAGE = (Path(__file__).parents[2] / "docs" / "json-output.md").read_text()
COMMANDS, GATES = PAGE.split("\n## Decisions and gates\n")


def rows_of(section):
    return {
        name: re.findall(r"`(\w+)`", rest)
        for names, rest in re.findall(r"^\| (`[^|]+`) \| (.+) \|$", section, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", names)
    }


ROWS = rows_of(COMMANDS)
REPORTS = Path(__file__).parents[2] / "examples" / "reports"
SUITE = "llm_core_regression_mini"


def printed(*words, code=0):
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == code, (result.output, result.exception)
    return json.loads(result.stdout)


def every_command(command=None, name=""):
    command = command or typer.main.get_command(app)
    if not hasattr(command, "commands"):
        yield name.strip(), command
    for word, child in getattr(command, "commands", {}).items():
        yield from every_command(child, f"{name} {word}")


def test_the_page_lists_every_command_with_the_option():
    with_json = {name for name, command in every_command() if any("--json" in one.opts for one in command.params)}
    assert with_json == set(ROWS)


def test_every_rule_of_a_gate_is_explained_with_its_thresholds():
    rules = {
        name: keys for name, keys in rows_of(GATES).items() if name not in ("evidence_gate", "release_gate", "rule")
    }
    assert set(rules) == {rule.value for rule in GateRule}
    for rule, names in THRESHOLDS.items():
        assert set(names) <= set(rules[rule.value])


def test_the_numbers_of_a_decision_have_the_keys_of_the_page():
    report = str(REPORTS / "agent_tool_regression.yaml")
    decision = printed("decide", report, "--suite", "agent_tool_regression_v1", code=1)
    explained = set(re.findall(r"`(\w+)`", GATES))
    assert set(ROWS["decide"]) <= set(decision)
    for numbers in (decision["numbers"], *(gate["numbers"] for gate in decision["gates"])):
        assert set(numbers) <= explained
        for read in numbers.get("inputs", []):
            assert set(read) <= explained


def test_trial_commands_have_at_most_eight_options():
    commands = dict(every_command())
    for name in ("demo", "run", "resume", "repeat", "replay", "sweep"):
        assert len([one for one in commands[name].params if one.opts[0].startswith("--")]) <= 8, name


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["tasks", "check", "arithmetic", "--model", "none"], 0),
        (["agents", "list"], 0),
        (["suite", "list"], 0),
        (["suite", "check", "agent_tool_regression_v1"], 0),
        (["suite", "diff", "llm_core_regression_v1", SUITE], 1),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_a_command_prints_has_the_keys_of_the_page(words, code):
    found = printed(*words, code=code)
    records = found if isinstance(found, list) else [found]
    records += [row for part in records[0].values() if isinstance(part, list) for row in part if isinstance(row, dict)]
    keys, row = {key for record in records for key in record}, set(ROWS[" ".join(words[:2])]) - {"null"}
    assert set(found[0] if isinstance(found, list) else found) <= row <= keys


def test_a_card_is_printed_with_its_rollouts(tmp_path):
    card = tmp_path / "card"
    with CardWriter(card, make_header()) as writer:
        for number in range(4):
            writer.append(make_record(f"item-{number}"))
        writer.close()
    found = printed("cards", "show", str(card), "--n", "2")
    assert set(found) == {"header", "totals", "kinds", "rollouts"} == set(ROWS["cards show"])
    assert len(found["rollouts"]) == 2
    (listed,) = printed("cards", "list", str(tmp_path))
    assert set(listed) == set(ROWS["cards list"])
