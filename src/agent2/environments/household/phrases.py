"""The engine's sentences: textworld's grammar, parsed once and evaluated over a set of facts.

The stock engine parses every template and every condition again for each sentence. Here textworld's own parsers run
once for each grammar, and the result is evaluated as textworld evaluates it: the first rule whose
condition holds, facts in sorted order, different placeholders bound to different entities.

Expressions inside a grammar (`{o.indefinite + ' ' + o.name}`) are read with `ast` and may use names, attributes of
entities, text, `+` and `or`; the stock engine hands them to `eval`.
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from agent2.environments.household.game import GameBroken, engine_parts
from agent2.errors import quoted
from agent2.syntax import parse_expression

Variable = tuple[str, str]
"""Name and type of an entity."""
Fact = tuple[str, tuple[Variable, ...]]
"""Predicate and arguments; sorts as textworld sorts propositions."""
Binding = dict[Variable, Variable]
"""Placeholder (name, type) -> entity."""

MAX_PIECES = 10_000
"""Grammar symbols that one sentence may use; a recursive grammar would never end."""


@dataclass(frozen=True, slots=True)
class Entity:
    """The forms in which sentences name an entity."""

    id: str
    name: str
    definite: str = "the"
    indefinite: str = "a"


class EngineFacts(Protocol):
    """The facts of the current state."""

    def matching(self, name: str, types: tuple[str, ...]) -> Sequence[Fact]:
        """The facts with this predicate and these argument types, sorted; subtypes in the order of the hierarchy."""


@dataclass(frozen=True, slots=True)
class Query:
    """A condition: predicates that must hold together."""

    predicates: tuple[tuple[str, tuple[Variable, ...]], ...]
    """Name and placeholders of each."""

    def solutions(self, facts: EngineFacts, bound: Binding) -> Iterator[Binding]:
        """Every way of binding the free placeholders, in textworld's order."""
        return self._from(0, facts, dict(bound))

    def _from(self, depth: int, facts: EngineFacts, bound: Binding) -> Iterator[Binding]:
        if depth == len(self.predicates):
            yield bound
            return
        name, placeholders = self.predicates[depth]
        for _, arguments in facts.matching(name, tuple(kind for _, kind in placeholders)):
            extended = _extend_binding(bound, placeholders, arguments)
            if extended is not None:
                yield from self._from(depth + 1, facts, extended)


def _extend_binding(bound: Binding, placeholders: Sequence[Variable], entities: Sequence[Variable]) -> Binding | None:
    """The bindings with these placeholders bound too; None if they clash or one entity would be bound twice."""
    joined = bound
    for placeholder, entity in zip(placeholders, entities, strict=True):
        existing = joined.get(placeholder)
        if existing is None and entity not in joined.values():
            joined = {**joined, placeholder: entity}
        elif existing != entity:
            return None
    return joined


@dataclass(frozen=True, slots=True)
class Text:
    """A literal piece."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A piece that is a reference to another rule."""

    rule: str


@dataclass(frozen=True, slots=True)
class Value:
    """A piece that is computed from the entities in scope."""

    compute: Callable[[Mapping[str, Entity]], str]


@dataclass(frozen=True, slots=True)
class Repetition:
    """A piece that is said once for each solution of its condition; once without condition."""

    piece: "Call | Value"
    condition: Query | None
    is_list: bool
    """True: joined with commas and "and", "nothing" when empty."""


Piece = Text | Call | Value | Repetition


@dataclass(frozen=True, slots=True)
class Rule:
    """One alternative of a grammar rule."""

    condition: Query | None
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ActionPhrases:
    """The command of an action, and the reply to it."""

    template: tuple[Piece, ...]
    feedback: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """What the pieces of a sentence can refer to."""

    facts: EngineFacts
    entities: Mapping[str, Entity]
    bound: Binding

    def value_of(self, piece: Value) -> str:
        """The computed text. Raises GameBroken where the grammar speaks of what is not there."""
        try:
            return piece.compute({name: self.entities[entity] for (name, _), (entity, _) in self.bound.items()})
        except KeyError as error:
            raise GameBroken(
                f"the game's grammar speaks of {error}, and there is no entity of that name in the sentence's scope; "
                "download the game again with alfworld-download -f"
            ) from error

    def with_binding(self, bound: Binding) -> "Scope":
        """The same facts seen with other bindings."""
        return Scope(self.facts, self.entities, bound)


@dataclass(frozen=True, slots=True)
class Phrasebook:
    """A parsed grammar."""

    actions: Mapping[str, ActionPhrases]
    rules: Mapping[str, tuple[Rule, ...]]
    opening: tuple[Piece, ...]

    def say(self, pieces: Sequence[Piece], scope: Scope) -> str:
        """The sentence. Raises GameBroken for a grammar that lacks a rule or never ends."""
        texts: list[str] = []
        stack: list[tuple[Piece, Scope]] = [(piece, scope) for piece in reversed(pieces)]
        for _ in range(MAX_PIECES):
            if not stack:
                return "".join(texts)
            piece, piece_scope = stack.pop()
            match piece:
                case Text():
                    texts.append(piece.text)
                case Value():
                    texts.append(piece_scope.value_of(piece))
                case Call():
                    stack.extend(
                        (part, piece_scope) for part in reversed(self._choose_rule(piece.rule, piece_scope).pieces)
                    )
                case Repetition():
                    stack.extend(reversed(_expand(piece, piece_scope)))
        raise GameBroken(
            "the game's grammar does not come to an end; download the game again with alfworld-download -f"
        )

    def _choose_rule(self, name: str, scope: Scope) -> Rule:
        for rule in self.rules.get(name, ()):
            if rule.condition is None or next(rule.condition.solutions(scope.facts, scope.bound), None) is not None:
                return rule
        raise GameBroken(
            f"the game's grammar has no sentence for {name!r}: it is of another version than the engine; "
            "download the game again with alfworld-download -f"
        )


def _expand(repetition: Repetition, scope: Scope) -> list[tuple[Piece, Scope]]:
    condition = repetition.condition
    bindings = [scope.bound] if condition is None else list(condition.solutions(scope.facts, scope.bound))
    parts: list[tuple[Piece, Scope]] = [(repetition.piece, scope.with_binding(bound)) for bound in bindings]
    if not repetition.is_list or len(parts) == 1:
        return parts
    if not parts:
        return [(Call("list_empty"), scope)]
    joined: list[tuple[Piece, Scope]] = []
    for number, part in enumerate(parts):
        if number:
            joined.append((Call("list_last_separator" if number == len(parts) - 1 else "list_separator"), scope))
        joined.append(part)
    return joined


@lru_cache(maxsize=16)
def read_grammar(grammar: str) -> Phrasebook:
    """Parse a grammar with textworld's parsers. Raises GameBroken if it is not one.

    grammar: the text of a `.twl2` file.
    """
    wheel = engine_parts()
    try:
        actions, sentences = wheel.logic._parse_and_convert(grammar, rule_name="pddlStart")
        rules = {
            name: tuple(Rule(_query(rule.condition), _pieces(rule.rhs)) for rule in alternatives)
            for name, alternatives in sentences._rules.items()
        }
        phrases = {
            name: ActionPhrases(_parse_symbols(action.template), _parse_symbols(action.feedback_rule))
            for name, action in actions.items()
        }
        return Phrasebook(phrases, rules, _parse_symbols("#intro#"))
    except GameBroken:
        raise
    except Exception as error:
        # The boundary to a foreign parser, which raises many types for a text that is not a grammar.
        raise GameBroken(
            f"the game's grammar cannot be read ({type(error).__name__}: {quoted(str(error))}): "
            "it is of another version than the engine; download the game again with alfworld-download -f"
        ) from error


def _parse_symbols(text: str) -> tuple[Piece, ...]:
    return _pieces(engine_parts().textgen._parse_and_convert(text, rule_name="symbols"))


def _pieces(symbols: Sequence[Any]) -> tuple[Piece, ...]:
    return tuple(_piece(symbol) for symbol in symbols)


def _piece(symbol: Any) -> Piece:
    textgen = engine_parts().textgen
    if isinstance(symbol, textgen.TerminalSymbol):
        return Text(str(symbol.symbol))
    if isinstance(symbol, textgen.NonterminalSymbol):
        return Call(str(symbol.symbol))
    if isinstance(symbol, textgen.EvalSymbol):
        return Value(_expression(symbol.expression))
    if isinstance(symbol, textgen.ListSymbol):
        inner = symbol.symbol
        return Repetition(_inner_piece(inner), _query(inner.given), is_list=True)
    return Repetition(_inner_piece(symbol), _query(symbol.given), is_list=False)


def _inner_piece(conditional: Any) -> Call | Value:
    piece = _piece(conditional.expression)
    if isinstance(piece, Call | Value):
        return piece
    raise GameBroken(
        f"the game's grammar nests {quoted(str(conditional.expression))}; download it again with alfworld-download -f"
    )


def _query(text: str | None) -> Query | None:
    if not text:
        return None
    rule = engine_parts().queries.parse_conjunctive_query(text)
    return Query(tuple((p.name, tuple((ph.name, ph.type) for ph in p.parameters)) for p in rule.preconditions))


def _expression(source: str) -> Callable[[Mapping[str, Entity]], str]:
    """An expression over entities as a function; nothing but what the module docstring lists."""
    tree = parse_expression(source.strip())
    inner = _compile(tree, source)
    return lambda scope: _text_of(inner(scope))


def _text_of(value: object) -> str:
    return value.name if isinstance(value, Entity) else str(value)


def _compile(node: ast.expr, source: str) -> Callable[[Mapping[str, Entity]], Any]:
    match node:
        case ast.Constant(value=str() as text):
            return lambda scope: text
        case ast.Name(id=name):
            return lambda scope: scope[name]
        case ast.Attribute(value=inner, attr=("id" | "name" | "definite" | "indefinite") as attribute):
            of = _compile(inner, source)
            return lambda scope: getattr(of(scope), attribute)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _compile(left, source), _compile(right, source)
            return lambda scope: first(scope) + second(scope)
        case ast.BoolOp(op=ast.Or(), values=values):
            choices = [_compile(value, source) for value in values]
            return lambda scope: next((value for choice in choices if (value := choice(scope))), "")
        case _:
            raise GameBroken(
                f"the game's grammar computes {quoted(source)}, which this engine does not allow; "
                "use the grammar that the alfworld wheel ships"
            )
