from collections import Counter, defaultdict

import pytest

from agent2.environments.household.game import engine_parts, quiet_import
from agent2.environments.household.grounding import Translator, translator
from household_games import games

pytestmark = pytest.mark.engine


def blocks_of(sas):
    """The sections of a SAS file by their names."""
    blocks, lines, name = defaultdict(list), [], None
    for line in sas.split("\n"):
        if line.startswith("begin_"):
            name, lines = line.removeprefix("begin_"), []
        elif line.startswith("end_"):
            blocks[name].append(lines)
            name = None
        elif name is not None:
            lines.append(line)
    return blocks


def meaning_of(sas):
    """What a SAS file says, whatever the order and numbers of its variables."""
    blocks = blocks_of(sas)
    values = [tuple(lines[3:]) for lines in blocks["variable"]]

    def atom(variable, value):
        return None if int(value) < 0 else values[int(variable)][int(value)]

    def operator(lines):
        n_conditions = int(lines[1])
        conditions = frozenset(atom(*line.split()) for line in lines[2 : 2 + n_conditions])
        effects = set()
        for line in lines[3 + n_conditions : -1]:
            n, *numbers = line.split()
            pairs = frozenset(atom(numbers[2 * i], numbers[2 * i + 1]) for i in range(int(n)))
            variable, before, after = numbers[2 * int(n) :]
            effects.add((pairs, atom(variable, before), atom(variable, after)))
        return lines[0], conditions, frozenset(effects), lines[-1]

    def axiom(lines):
        variable, before, after = lines[-1].split()
        conditions = frozenset(atom(*line.split()) for line in lines[1:-1])
        return conditions, atom(variable, before), atom(variable, after)

    return {
        "variables": Counter((value, lines[1]) for value, lines in zip(values, blocks["variable"], strict=True)),
        "start": Counter(atom(number, value) for number, value in enumerate(blocks["state"][0])),
        "goal": [atom(*line.split()) for line in blocks["goal"][0][1:]],
        "operators": Counter(operator(lines) for lines in blocks["operator"]),
        "axioms": Counter(axiom(lines) for lines in blocks["rule"]),
        "metric": blocks["metric"],
    }


@pytest.mark.parametrize(("size", "n"), [("tiny", 8), ("small", 6), ("full", 2)])
def test_a_problem_means_what_pddl2sas_makes_of_it(size, n):
    wheel = engine_parts()
    for game in games(n, size, seed=5):
        with quiet_import():
            task, sas = wheel.solver.pddl2sas(wheel.domain, game.problem)
        ours, text = translator(wheel.domain).translate(game.problem)
        assert meaning_of(text) == meaning_of(sas)
        stock_types = {entity.name: entity.type_name for entity in task.objects}
        types = {entity.name: entity.type_name for entity in ours.objects}
        assert types.items() <= stock_types.items()
        assert {stock_types[name] for name in stock_types.keys() - types.keys()} <= {"otype", "rtype"}


def test_one_problem_leaves_nothing_behind_for_the_next():
    first, second = games(2)
    fresh, used = Translator(engine_parts().domain), Translator(engine_parts().domain)
    used.translate(first.problem)
    assert meaning_of(used.translate(second.problem)[1]) == meaning_of(fresh.translate(second.problem)[1])


def test_a_problem_of_another_domain_is_refused():
    problem = games(1)[0].problem.replace("(:domain alfred)", "(:domain blocks)")
    with pytest.raises(ValueError, match="of the domain blocks, not of alfred"):
        translator(engine_parts().domain).translate(problem)


def test_nothing_is_printed(capsys):
    translator(engine_parts().domain).translate(games(1)[0].problem)
    assert capsys.readouterr() == ("", "")
