"""fast-downward's PDDL translation of many problems of one domain, with the domain's share done once.

`fast_downward.pddl2sas` reads and normalises the domain again for every problem. Here the same steps of the same
translator run for the domain once and then only for what a problem adds: its objects, facts and goal. Types of things
that a problem declares and never mentions (`otype`, `rtype`) are left out: no action can apply to them.

Promises: the variables, operators and facts of `pddl2sas` without `optimize` (tested). Holds for domains without
derived predicates or constants whose actions take an `otype` or `rtype` only as the type of something, as the one
that alfworld ships; others belong to `pddl2sas`.
"""

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from agent2.environments.household.stock import part, quiet_import

_IDLE_TYPES = frozenset({"otype", "rtype"})
_PROBLEM = "(define (problem none) (:domain alfred) (:objects) (:init) (:goal (and)))"


class Translator:
    """Translates problems of one domain."""

    def __init__(self, domain: str) -> None:
        """Read the domain. Raises what the translator raises for a text that is not a domain."""
        with _as_the_translator_wants():
            self._parsing: Any = part("fast_downward.translate.pddl_parser.parsing_functions")
            self._lists: Any = part("fast_downward.translate.pddl_parser.lisp_parser")
            self._normalize: Any = part("fast_downward.translate.normalize")
            self._prolog: Any = part("fast_downward.translate.pddl_to_prolog")
            self._model: Any = part("fast_downward.translate.build_model")
            self._instantiate: Any = part("fast_downward.translate.instantiate")
            self._groups: Any = part("fast_downward.translate.fact_groups")
            self._steps: Any = part("fast_downward.translate.translate")
            self._order: Any = part("fast_downward.translate.variable_order")
            self._pddl: Any = part("fast_downward.translate.pddl")
            read = list(self._parsing.parse_domain_pddl(self._nested(domain)))
            self._name, self._requirements, self._types, self._type_by_name = read[:4]
            self._predicates, self._predicate_by_name, self._functions = read[5:8]
            task = self._task(self._nested(_PROBLEM), read[8])
            self._normalize.normalize(task)
            self._actions = task.actions
            self._rules = self._program_of(task, "action").rules  # its only fact is the empty problem's goal

    def translate(self, problem: str) -> tuple[Any, str]:
        """The problem as the translator's task, and the solver's input; see `fast_downward.pddl2sas`."""
        with _as_the_translator_wants():
            task = self._task(self._nested(problem), [])
            self._normalize.normalize(task)
            program = self._program_of(task, "goal")
            self._prolog.translate_facts(program, task)
            program.rules = [*self._rules, *program.rules]
            task.actions = self._actions
            model = self._model.compute_model(program)
            sas, text = self._sas(task, model), io.StringIO()
            sas.output(text)
            return task, text.getvalue()

    def _nested(self, text: str) -> Any:
        return self._lists.parse_nested_list(text.split("\n"))

    def _task(self, nested: Any, actions: list[Any]) -> Any:
        """The translator's task of a problem, with these actions."""
        read = list(self._parsing.parse_task_pddl(nested, self._type_by_name, self._predicate_by_name))
        name, domain, requirements, declared, facts, goal, use_metric = read
        if domain != self._name:
            raise ValueError(f"the problem is of the domain {domain}, not of {self._name}")
        mentioned = {word for fact in facts if hasattr(fact, "args") for word in fact.args} | set(_words(nested[-1]))
        objects = [each for each in declared if each.type_name not in _IDLE_TYPES or each.name in mentioned]
        self._parsing.check_for_duplicates(
            [each.name for each in objects], errmsg="error: duplicate object %r", finalmsg="check the :objects"
        )
        equal = [self._pddl.Atom("=", (each.name, each.name)) for each in objects]
        return self._pddl.Task(
            self._name,
            name,
            requirements,
            self._types,
            objects,
            self._predicates,
            self._functions,
            [*facts, *equal],
            goal,
            actions,
            [],
            use_metric,
        )

    def _program_of(self, task: Any, prefix: str) -> Any:
        """The rules by which the translator finds out what can be reached; prefix: of the predicates it makes up."""
        program = self._prolog.PrologProgram()
        program.new_name = (f"{prefix}${number}" for number in itertools.count())
        for conditions, effect in self._normalize.build_exploration_rules(task):
            program.add_rule(self._prolog.Rule(conditions, effect))
        program.normalize()
        program.split_rules()
        return program

    def _sas(self, task: Any, model: Any) -> Any:
        """The steps of `translate.pddl_to_sas` after the exploration, for the full encoding."""
        steps = self._steps
        is_reachable, atoms, actions, axioms, _ = self._instantiate.instantiate(task, model)
        if not is_reachable:
            return steps.unsolvable_sas_task("No relaxed solution")
        is_list = isinstance(task.goal, self._pddl.Conjunction)
        groups = sorted([atom] for atom in atoms)  # no invariants are looked for: a variable for each fact
        ranges, values = steps.strips_to_sas_dictionary(groups, assert_partial=False)
        sas = steps.translate_task(
            values,
            ranges,
            self._groups.build_translation_key(groups),
            values,
            ranges,
            [],
            task.init,
            task.goal.parts if is_list else [task.goal],
            actions,
            axioms,
            task.use_min_cost_metric,
            {},
        )
        self._order.find_and_apply_variable_order(sas, True, False)
        return sas


def _words(nested: Any) -> Iterator[str]:
    """Every word of a nested list."""
    for each in nested:
        if isinstance(each, str):
            yield each
        else:
            yield from _words(each)


@contextlib.contextmanager
def _as_the_translator_wants() -> Iterator[None]:
    """Its options as `pddl2sas` sets them, arguments that it can parse, and its chatter kept off standard output."""
    with quiet_import(), contextlib.redirect_stdout(io.StringIO()):
        sys.argv = ["translate.py", "domain", "task"]
        options: Any = part("fast_downward.translate.options")
        options.filter_unimportant_vars = False
        options.filter_unreachable_facts = False
        options.use_partial_encoding = False
        options.add_implied_preconditions = False
        options.invariant_generation_max_candidates = 0
        yield


@cache
def translator(domain: str) -> Translator:
    """The translator of a domain, made once."""
    return Translator(domain)
