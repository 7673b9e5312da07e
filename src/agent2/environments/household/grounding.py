"""A game's PDDL made ready for fast-downward, and its planning state as a small object; nothing here plans.

`translate` gives the solver's input and the facts of one game, by fast-downward's own translator.
`fast_downward.pddl2sas` parses and normalises the domain again for every problem; `Translator` runs the same steps for
the domain once and then only for what a problem adds: its objects, facts and goal. Objects of types that a problem
declares and never mentions (`otype`, `rtype`) are left out: no action can apply to them.

`Solver` is a planning state: which operators apply, what they change, whether the goal holds. Each solver holds one
copy of the shared library, and with it one state. Not thread-safe.

Promises: the variables, operators and facts are those of `pddl2sas` without `optimize`, with which the stock engine
works (tested); broken games are refused with the reason. Holds for domains without derived predicates or constants
whose actions take an `otype` or `rtype` only as a type, such as the one that alfworld ships; games with another domain
go to `pddl2sas`.
"""

import contextlib
import ctypes
import gc
import io
import itertools
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from agent2.environments.household.game import Game, GameBroken, engine_parts, import_part, quiet_import
from agent2.environments.household.phrases import Fact, Variable
from agent2.errors import quoted

_NAME_BYTES = 1024
"""Length of a name in the library's records."""
_OPERATOR = np.dtype([("id", np.int32), ("name", f"S{_NAME_BYTES}"), ("n_effects", np.int32)])
_ENCODING = "cp1252"
_DECIDED_TASK = "Atom dummy(val1)"
"""The translator's output for a task that is already won or unsolvable."""
_UNUSED_TYPES = frozenset({"otype", "rtype"})
_EMPTY_PROBLEM = "(define (problem none) (:domain alfred) (:objects) (:init) (:goal (and)))"
_free_libraries: list[Any] = []
"""Library copies without a solver. A copy takes 33 MB of disk and is reused, because closing one may crash."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One possible action."""

    id: int
    name: str
    """The action and its arguments, "gotolocation agent1 loc_bar_0 loc_bar_1 shelf_bar_00"."""
    n_effects: int


class Solver:
    """One planning state."""

    def __init__(self) -> None:
        with quiet_import():
            self._library: Any = _free_libraries.pop() if _free_libraries else engine_parts().solver.load_lib()
        weakref.finalize(self, _free_libraries.append, self._library)
        self._operators: Any = None
        self._records = np.zeros(0, _OPERATOR)
        self._atoms: Any = None
        self._n_atoms = 0

    def begin(self, sas: bytes) -> None:
        """Load the initial state of a translated game; takes under 1 ms."""
        self._library.load_sas(sas)

    def atoms(self) -> list[str]:
        """The value of every variable of the state, "Atom holdsany(agent1)" or "NegatedAtom ..."."""
        return self._read_atoms(self._library.get_state_size(), self._library.get_state)

    def is_won(self) -> bool:
        """True where the goal holds."""
        return bool(self._library.check_goal())

    def applicable(self) -> bytes:
        """The ids of the operators that apply, as an opaque key: equal keys, equal operators."""
        count = self._library.get_applicable_operators_count()
        if count > len(self._records):
            self._operators = (engine_parts().solver.Operator * (2 * count))()
            self._records = np.frombuffer(self._operators, dtype=_OPERATOR)
        if count:
            self._library.get_applicable_operators(self._operators)
        return self._records["id"][:count].tobytes()

    def operators(self, n: int) -> list[Operator]:
        """The n operators that `applicable` has just found."""
        records = self._records[:n]
        return [
            Operator(number, name.split(b"\0", 1)[0].decode(_ENCODING), n_effects)
            for number, name, n_effects in zip(
                records["id"].tolist(), records["name"].tolist(), records["n_effects"].tolist(), strict=True
            )
        ]

    def apply(self, operator: int, n_effects: int) -> list[str]:
        """Carry out an operator that applies; the atoms that it made true or, negated, false."""
        return self._read_atoms(n_effects, lambda atoms: self._library.apply_operator(operator, atoms))

    def repeat(self, operators: Sequence[Operator]) -> None:
        """Carry out a sequence of operators whose effects are already known."""
        for operator in operators:
            self._library.apply_operator(operator.id, self._atom_array(operator.n_effects))

    def _read_atoms(self, n: int, fill: Any) -> list[str]:
        atoms = self._atom_array(n)
        fill(atoms)
        at = ctypes.addressof(atoms)
        return [ctypes.string_at(at + i * _NAME_BYTES).decode(_ENCODING) for i in range(n)]

    def _atom_array(self, n: int) -> Any:
        """An array for at least n atoms."""
        if n > self._n_atoms or self._atoms is None:
            self._n_atoms = max(2 * n, 16)
            self._atoms = (engine_parts().solver.Atom * self._n_atoms)()
        return self._atoms


class Translator:
    """Translates problems of one domain, which is parsed once."""

    def __init__(self, domain: str) -> None:
        """Read the domain. Raises what the translator raises for a text that is not a domain."""
        with _translator_environment():
            self._parsing: Any = import_part("fast_downward.translate.pddl_parser.parsing_functions")
            self._lists: Any = import_part("fast_downward.translate.pddl_parser.lisp_parser")
            self._normalize: Any = import_part("fast_downward.translate.normalize")
            self._prolog: Any = import_part("fast_downward.translate.pddl_to_prolog")
            self._model: Any = import_part("fast_downward.translate.build_model")
            self._instantiate: Any = import_part("fast_downward.translate.instantiate")
            self._groups: Any = import_part("fast_downward.translate.fact_groups")
            self._steps: Any = import_part("fast_downward.translate.translate")
            self._order: Any = import_part("fast_downward.translate.variable_order")
            self._pddl: Any = import_part("fast_downward.translate.pddl")
            domain_parts = list(self._parsing.parse_domain_pddl(self._parse_lists(domain)))
            self._name, self._requirements, self._types, self._type_by_name = domain_parts[:4]
            self._predicates, self._predicate_by_name, self._functions = domain_parts[5:8]
            task = self._task(self._parse_lists(_EMPTY_PROBLEM), domain_parts[8])
            self._normalize.normalize(task)
            self._actions = task.actions
            self._rules = self._program_of(task, "action").rules  # its only fact is the empty problem's goal

    def translate(self, problem: str) -> tuple[Any, str]:
        """The problem as the translator's task, and the solver's input; see `fast_downward.pddl2sas`."""
        with _translator_environment():
            task = self._task(self._parse_lists(problem), [])
            self._normalize.normalize(task)
            program = self._program_of(task, "goal")
            self._prolog.translate_facts(program, task)
            program.rules = [*self._rules, *program.rules]
            task.actions = self._actions
            model = self._model.compute_model(program)
            sas, text = self._sas(task, model), io.StringIO()
            sas.output(text)
            return task, text.getvalue()

    def _parse_lists(self, text: str) -> Any:
        return self._lists.parse_nested_list(text.split("\n"))

    def _task(self, nested: Any, actions: list[Any]) -> Any:
        """The translator's task of a problem, with these actions."""
        problem_parts = list(self._parsing.parse_task_pddl(nested, self._type_by_name, self._predicate_by_name))
        name, domain, requirements, declared, facts, goal, use_metric = problem_parts
        if domain != self._name:
            raise ValueError(f"the problem is of the domain {domain}, not of {self._name}")
        mentioned = {word for fact in facts if hasattr(fact, "args") for word in fact.args} | set(
            _flat_words(nested[-1])
        )
        objects = [entity for entity in declared if entity.type_name not in _UNUSED_TYPES or entity.name in mentioned]
        self._parsing.check_for_duplicates(
            [entity.name for entity in objects], errmsg="error: duplicate object %r", finalmsg="check the :objects"
        )
        equal = [self._pddl.Atom("=", (entity.name, entity.name)) for entity in objects]
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
        """The rules by which the translator explores what is reachable. prefix: of the predicates that it invents."""
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
        groups = sorted([atom] for atom in atoms)  # without a search for invariants: a variable for each fact
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


def _flat_words(nested: Any) -> Iterator[str]:
    """Every word of a nested list."""
    for element in nested:
        if isinstance(element, str):
            yield element
        else:
            yield from _flat_words(element)


@contextlib.contextmanager
def _translator_environment() -> Iterator[None]:
    """The process state that the translator needs: options as `pddl2sas` sets them, parseable arguments, no output."""
    with quiet_import(), contextlib.redirect_stdout(io.StringIO()):
        sys.argv = ["translate.py", "domain", "task"]
        options: Any = import_part("fast_downward.translate.options")
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


@dataclass(frozen=True, slots=True)
class PddlParameter:
    """One parameter of an action."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Translation:
    """The solver's input for a game."""

    sas: bytes
    facts: tuple[Fact, ...]
    """Facts of the initial state, including those that the solver leaves out because they never change."""
    types: Mapping[str, str]
    """Object -> its type."""
    supertypes: tuple[tuple[str, tuple[str, ...]], ...]
    """Each type with its supertypes."""
    parameters: Mapping[str, tuple[PddlParameter, ...]]
    """Action -> its parameters."""
    conditional: frozenset[str]
    """Actions with effects that depend on the state."""
    fluents: frozenset[str]
    """Predicates that an action can change."""


def translate(game: Game) -> Translation:
    """Translate one game. Raises GameBroken if it is not PDDL, unsolvable or already won.

    Takes some 9 ms (tiny) to 120 ms (full) of CPU, by the number of entities.
    """
    wheel = engine_parts()
    try:
        with quiet_import(), _without_gc():
            if game.domain is None:
                task, sas = translator(wheel.domain).translate(game.problem)
            else:
                task, sas = wheel.solver.pddl2sas(game.domain, game.problem)
    except (Exception, SystemExit) as error:
        # The boundary to a foreign parser, which raises many types, or exits, for a text that is not a PDDL task.
        raise GameBroken(
            f"the game's problem cannot be translated ({type(error).__name__}: {quoted(str(error))}): it is not PDDL "
            "of this domain, or was made for an older one; download or generate the game again"
        ) from error
    if _DECIDED_TASK in sas:
        goal = sas.split("begin_goal", 1)[1].split()[:3]
        raise already_won() if goal == ["1", "0", "0"] else unsolvable()
    return _translation(task, sas.encode("utf-8"))


@contextmanager
def _without_gc() -> Iterator[None]:
    """Without cyclic garbage collection, which would take a third of the time with the translator's many objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def unsolvable() -> GameBroken:
    """The error for a game that cannot be won."""
    return GameBroken(
        "the game cannot be solved: no sequence of actions reaches its goal; remove it, or make it so that what the "
        "goal names is there and can be reached"
    )


def already_won() -> GameBroken:
    """The error for a game whose initial state fulfils its goal."""
    return GameBroken("the game is already won when it begins; remove it, or place its target elsewhere")


def _translation(task: Any, sas: bytes) -> Translation:
    types = {entity.name: entity.type_name for entity in task.objects}
    return Translation(
        sas=sas,
        facts=tuple(fact for atom in task.init if (fact := _initial_fact(atom, types)) is not None),
        types=types,
        supertypes=tuple((kind.name, tuple(kind.supertype_names)) for kind in task.types),
        parameters={
            action.name: tuple(
                PddlParameter(parameter.name.strip("?"), parameter.type_name) for parameter in action.parameters
            )
            for action in task.actions
        },
        conditional=frozenset(
            action.name
            for action in task.actions
            if any(type(effect.condition).__name__ != "Truth" for effect in action.effects)
        ),
        fluents=frozenset(effect.literal.predicate for action in task.actions for effect in action.effects),
    )


def _initial_fact(atom: Any, types: Mapping[str, str]) -> Fact | None:
    """A fact of the initial state; None for equalities and for costs, which are numbers."""
    if not hasattr(atom, "predicate") or atom.predicate == "=":
        return None
    return atom.predicate, tuple((name, types[name]) for name in atom.args)


def read_atom(text: str, types: Mapping[str, str]) -> tuple[Fact, bool]:
    """A solver's "Atom holds(agent1, mug_bar_01)" as a fact, and whether it is affirmed.

    Raises KeyError for an entity that the game has not declared.
    """
    kind, signature = text.split(" ", 1)
    name, arguments = signature.split("(", 1)
    entities: tuple[Variable, ...] = tuple(
        (entity.upper() if entity in ("i", "p") else entity, types[entity])  # Textworld writes these two in capitals
        for entity in arguments[:-1].split(", ")
        if entity
    )
    return (name, entities), kind != "NegatedAtom"
