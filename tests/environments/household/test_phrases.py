import pytest

from agent2.environments.household.game import GameBroken
from agent2.environments.household.phrases import (
    Call,
    Entity,
    Phrasebook,
    Query,
    Repetition,
    Rule,
    Scope,
    Text,
    read_grammar,
)

pytestmark = pytest.mark.engine

GRAMMAR = '''
grammar :: """
    {
        "intro": [{"rhs": "START"}],
        "list_empty": [{"rhs": "nothing"}],
        "list_separator": [{"rhs": ", "}],
        "list_last_separator": [{"rhs": ", and "}],
        "seen": [
            {"condition": "dark(r:room)", "rhs": "It is dark."},
            {"rhs": "RHS"}
        ]
    }
""";
action see {
    template :: "see {r}";
    feedback :: "#seen#";
}
'''
MUG, PEN, CUP, DESK = ("mug", "object"), ("pen", "object"), ("cup", "object"), ("desk", "room")
ENTITIES = {name: Entity(name, f"{name} 1") for name in ("mug", "pen", "cup", "desk")}


class FactList:
    def __init__(self, *facts):
        self._facts = facts

    def matching(self, name, types):
        kinds = [tuple(kind for _, kind in arguments) for _, arguments in self._facts]
        pairs = zip(self._facts, kinds, strict=True)
        return sorted(fact for fact, kind in pairs if fact[0] == name and kind == types)


def feedback(rhs, *facts):
    book = read_grammar(GRAMMAR.replace("RHS", rhs))
    scope = Scope(FactList(*facts), ENTITIES, {("r", "room"): DESK})
    return book.say(book.actions["see"].feedback, scope)


@pytest.mark.parametrize(
    ("entities", "text"),
    [
        ((), "nothing"),
        ((MUG,), "a mug 1"),
        ((PEN, MUG), "a mug 1, and a pen 1"),
        ((PEN, MUG, CUP), "a cup 1, a mug 1, and a pen 1"),
    ],
)
def test_a_list_is_sorted_and_joined(entities, text):
    facts = [("on", (entity, DESK)) for entity in entities]
    assert feedback("You see [{o.indefinite + ' ' + o.name | on(o:object, r:room)}].", *facts) == f"You see {text}."


def test_the_first_rule_whose_condition_holds_is_said():
    assert feedback("It is light.", ("dark", (DESK,))) == "It is dark."
    assert feedback("It is light.") == "It is light."


def test_attributes_alternatives_and_text_are_computed():
    assert feedback("{r.name or r.id} {r.definite} {r}") == "desk 1 the desk 1"


def test_different_placeholders_are_different_things():
    query = Query((("on", (("a", "object"), ("r", "room"))), ("on", (("b", "object"), ("r", "room")))))
    facts = FactList(("on", (MUG, DESK)), ("on", (PEN, DESK)))
    pairs = [(binding["a", "object"], binding["b", "object"]) for binding in query.solutions(facts, {})]
    assert pairs == [(MUG, PEN), (PEN, MUG)]
    assert list(query.solutions(facts, {("a", "object"): CUP})) == []


@pytest.mark.parametrize(
    "expression", ["__import__('os').name", "r.__class__", "r.name * 9", "(lambda: 1)()", "1", "q.name", "3.name"]
)
def test_expressions_cannot_do_anything_else(expression):
    with pytest.raises(GameBroken, match=r"does not allow|cannot be read|no entity"):
        feedback(f"{{{expression}}}")


def test_a_grammar_that_calls_itself_forever_is_refused():
    with pytest.raises(GameBroken, match=r"does not come to an end.*alfworld-download -f"):
        feedback("#seen# again")


def test_a_sentence_that_is_missing_is_named():
    book = Phrasebook({}, {"a": (Rule(None, (Call("b"),)),)}, ())
    with pytest.raises(GameBroken, match=r"no sentence for 'b'.*alfworld-download -f"):
        book.say([Text("x"), Call("a")], Scope(FactList(), {}, {}))


def test_a_conditional_that_is_no_list_says_all_its_solutions():
    repetition = Repetition(Call("x"), Query((("on", (("o", "object"), ("r", "room"))),)), is_list=False)
    book = Phrasebook({}, {"x": (Rule(None, (Text("."),)),)}, ())
    facts = FactList(("on", (MUG, DESK)), ("on", (PEN, DESK)))
    assert book.say([repetition], Scope(facts, {}, {})) == ".."
