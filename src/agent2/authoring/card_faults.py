"""Faults of task cards that need no model: a leaked answer, a duplicate, two keys of one question, a shortcut.

A shortcut player reads less than the question (the options alone, or the numbers of the prompt). One that is right more
often than chance explains shows a fault of the set, and each item that it answers is named. Verifiers that run commands
are played by `played_faults`: an empty patch, tests deleted, programs that end at once; and the card's own solution.

Does NOT find a shortcut in words that no player here knows, or a paraphrase with other numbers and names.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent2.authoring.own_benchmark import payload_of
from agent2.authoring.task_cards import TaskCard
from agent2.evaluation.scoring import ScoringResources, sandbox_runner
from agent2.integrity.plain_text import normalized_words
from agent2.scorers.task_card import ANSWER_FILE, ANSWER_SCRIPT, TaskCardScorer
from agent2.scorers.workspace_paths import laid_over
from agent2.stats.items import chance_of_as_many

SAME_WORDS = 0.5
"""Share of words that two questions with the same answer, numbers and rare words have in common if one is the other."""
RARE_SHARE = 0.02
"""Of the cards: words in no more of them are rare."""
MIN_CHARS = 3
"""Of an answer without options that counts as given away where the prompt contains it."""
MIN_GUESSED = 3
P_VALUE = 0.01
"""Of a shortcut player, divided by the number of players."""
LONGER = 1.5
LONGER_BY = 5
"""An option that is so many times, and so many characters, longer than any other is conspicuous."""
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
_GIVES = re.compile(
    r"(?:\banswers?(?: key)?|\bsolution|\bkey|\bcorrect (?:answer|option|choice)|\bresult)"
    r"(?:\s+is|\s+was)?\s*[:=]?\s*[\"'(*]*"
    r"(?P<text>[^\n\"')*]{1,200})",
    re.IGNORECASE,
)


class FaultKind(StrEnum):
    """Why an item should not be in the benchmark."""

    LEAKED = "leaked_answer"
    CONTAINED = "contains_answer"
    """In the prompt, perhaps by accident: 44 - 22."""
    DUPLICATE = "duplicate"
    TWO_KEYS = "two_keys"
    TWO_RIGHT = "two_right_options"
    SHORTCUT = "shortcut"
    WEAK_VERIFIER = "weak_verifier"
    """The verifier passes on work that was not done."""
    UNSOLVABLE = "unsolvable"
    """The card's own solution does not pass."""
    WRONG_KEY = "wrong_key"
    AMBIGUOUS = "ambiguous"
    INVERTED = "inverted"
    """The weak player solves it and the strong one does not."""


@dataclass(frozen=True, slots=True)
class CardFault:
    """One item and what is wrong with it."""

    item: str
    kind: FaultKind
    reason: str


def static_faults(cards: Sequence[TaskCard]) -> list[CardFault]:
    """The faults that reading finds, by kind; an item may have several."""
    questions = [card for card in cards if not card.runs_command]
    return [*_leaks(questions), *_repeats(cards), *_equal_options(questions), *_shortcuts(questions)]


def _key_text(card: TaskCard) -> str:
    """The right answer in words."""
    if card.options and card.answer:
        return card.options[ord(card.answer) - ord("A")]
    return card.answer or ""


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.decode() for word in normalized_words(text))


def _is_within(key: Sequence[str], tokens: Sequence[str]) -> bool:
    n = len(key)
    return any(tuple(tokens[start : start + n]) == tuple(key) for start in range(len(tokens) - n + 1))


def _leaks(cards: Sequence[TaskCard]) -> Iterator[CardFault]:
    """Prompts that state their answer, or contain one where the others of their task type do not."""
    inside: dict[str, list[TaskCard]] = defaultdict(list)
    sizes = Counter(card.task_type for card in cards)
    for card in cards:
        key = _words(_key_text(card))
        stated = [_words(match["text"])[: len(key)] for match in _GIVES.finditer(card.prompt)]
        letters = [match["text"].strip() for match in _GIVES.finditer(card.prompt)] if card.options else []
        is_lettered = any(re.fullmatch(rf"\(?{card.answer}\)?[.]?", text) for text in letters)
        if key and (tuple(key) in stated or is_lettered):
            yield CardFault(card.id, FaultKind.LEAKED, f"the prompt states the answer {_key_text(card)!r}")
        elif key and _is_within(key, _words(card.prompt)):
            inside[card.task_type].append(card)
    for task_type, members in inside.items():
        # Where many prompts name their answer among others ("which is heavier, A or B"), naming it gives nothing away.
        if len(members) > max(2, 0.1 * sizes[task_type]):
            continue
        for card in members:
            if _is_telling(card):
                yield CardFault(card.id, FaultKind.CONTAINED, f"the prompt contains the answer {_key_text(card)!r}")


def _is_telling(card: TaskCard) -> bool:
    """Whether an answer in a prompt is no accident: the only option there, or not too short."""
    if not card.options:
        return len(_key_text(card)) >= MIN_CHARS
    prompt = _words(card.prompt)
    return sum(_is_within(_words(option), prompt) for option in card.options if _words(option)) == 1


def _equal_options(cards: Sequence[TaskCard]) -> Iterator[CardFault]:
    """Questions with two options of one value, one of them the key."""
    for card in cards:
        key = _value(_key_text(card))
        equal = [option for option in card.options if _value(option) == key]
        if len(equal) > 1:
            reason = f"the options {equal[0]!r} and {equal[1]!r} are the same"
            yield CardFault(card.id, FaultKind.TWO_RIGHT, reason)


def _value(text: str) -> float | str:
    """What a text says: a number, or its words."""
    plain = text.strip().replace(",", "").removesuffix("%").rstrip(".")
    try:
        return float(plain)
    except ValueError:
        return " ".join(text.casefold().split()).rstrip(".")


def _repeats(cards: Sequence[TaskCard]) -> Iterator[CardFault]:
    """Questions that come twice: with one key duplicates, with two keys wrong."""
    texts = {card.id: " ".join([card.prompt, *sorted(card.options)]).casefold().split() for card in cards}
    tokens = {card.id: _words(" ".join([card.prompt, *sorted(card.options)])) for card in cards}
    counts = Counter(word for members in tokens.values() for word in set(members))
    n_rare = max(2, int(RARE_SHARE * len(cards)))
    first: dict[tuple[object, ...], TaskCard] = {}
    near: dict[tuple[object, ...], list[TaskCard]] = defaultdict(list)
    for card in cards:
        state = tuple(sorted(card.initial_state.files.items()))
        earlier = first.setdefault((tuple(texts[card.id]), state), card)
        if earlier is not card:
            is_same = _key_text(earlier).strip() == _key_text(card).strip()
            yield _repeat(card, earlier, is_same=is_same)
            continue
        rare = frozenset(word for word in tokens[card.id] if counts[word] <= n_rare)
        numbers = tuple(_NUMBER.findall(card.prompt))
        if not (rare or len(numbers) > 1) or card.runs_command:
            continue
        group = near[_key_text(card).strip().casefold(), numbers, _names(card.prompt), _signs(card.prompt)]
        match = next((earlier for earlier in group if _shared(tokens[earlier.id], tokens[card.id]) >= SAME_WORDS), None)
        if match is not None:
            yield CardFault(card.id, FaultKind.DUPLICATE, f"asks the same as {match.id} in other words")
        group.append(card)


def _repeat(card: TaskCard, earlier: TaskCard, *, is_same: bool) -> CardFault:
    if is_same:
        return CardFault(card.id, FaultKind.DUPLICATE, f"asks the same as {earlier.id}")
    return CardFault(card.id, FaultKind.TWO_KEYS, f"has another key than {earlier.id}")


def _signs(prompt: str) -> tuple[str, ...]:
    """What stands for an operation."""
    return tuple(sorted(re.findall(r"(?<!\w)[-+*/^<>=%]+(?!\w)", prompt)))


def _names(prompt: str) -> frozenset[str]:
    """Capitalised words that do not open a sentence."""
    return frozenset(re.findall(r"(?<=[a-z0-9,;] )[A-Z][\w-]+", prompt))


def _shared(first: Sequence[str], second: Sequence[str]) -> float:
    union = set(first) | set(second)
    return len(set(first) & set(second)) / len(union) if union else 0.0


@dataclass(frozen=True, slots=True)
class ShortcutPlayer:
    """A player that reads less than the question."""

    name: str
    guess: Callable[[TaskCard], str | None]
    """Its answer; None: it has none for this card."""


def _conspicuous(card: TaskCard, sizes: Callable[[str], float], factor: float) -> str | None:
    ranked = sorted(card.options, key=sizes, reverse=True)
    if len(ranked) < 2 or sizes(ranked[0]) < sizes(ranked[1]) + LONGER_BY:
        return None
    return ranked[0] if sizes(ranked[0]) >= factor * sizes(ranked[1]) else None


def _odd_form(card: TaskCard) -> str | None:
    """The only option of another form: its last sign, its first letter's case, signs in it."""
    forms = {
        option: (
            option[-1:] if not option[-1:].isalnum() else "",
            option[:1].isupper(),
            bool(re.search(r"[()\[\]]", option)),
        )
        for option in card.options
    }
    counts = Counter(forms.values())
    odd = [option for option, form in forms.items() if counts[form] == 1]
    return odd[0] if len(odd) == 1 and len(card.options) > 2 else None


def _nth_number(place: int) -> Callable[[TaskCard], str | None]:
    def guess(card: TaskCard) -> str | None:
        numbers = _NUMBER.findall(card.prompt) if not card.options else []
        return numbers[place] if numbers else None

    return guess


PLAYERS = (
    ShortcutPlayer("the much longer option", lambda card: _conspicuous(card, len, LONGER)),
    ShortcutPlayer("the option of another form", _odd_form),
    ShortcutPlayer("the first option", lambda card: card.options[0] if card.options else None),
    ShortcutPlayer("the last option", lambda card: card.options[-1] if card.options else None),
    ShortcutPlayer("the first number of the prompt", _nth_number(0)),
    ShortcutPlayer("the last number of the prompt", _nth_number(-1)),
)


@dataclass(frozen=True, slots=True)
class PlayedShortcut:
    """How often a shortcut player is right."""

    player: str
    n_right: int
    n_guessed: int
    expected: float
    """Right answers that guessing alone gives."""
    p_value: float
    items: tuple[str, ...]
    """Those it answers right."""

    @property
    def wins(self) -> bool:
        """Whether chance does not explain it."""
        return self.n_right >= MIN_GUESSED and self.p_value < P_VALUE / len(PLAYERS)


def play_shortcuts(cards: Sequence[TaskCard]) -> list[PlayedShortcut]:
    """Every shortcut player on every question. Chance: one option of all, or how often its answers fit other items."""
    keys = Counter(_key_text(card).strip() for card in cards)
    results = []
    for player in PLAYERS:
        guesses = {card.id: text for card in cards if (text := player.guess(card)) is not None}
        guessed = [card for card in cards if card.id in guesses]
        right = [card.id for card in guessed if guesses[card.id].strip() == _key_text(card).strip()]
        chances = [
            1 / len(card.options)
            if card.options
            else (keys[guesses[card.id].strip()] - (card.id in right)) / max(1, len(cards) - 1)
            for card in guessed
        ]
        p_value = chance_of_as_many(len(right), chances)
        results.append(PlayedShortcut(player.name, len(right), len(guessed), sum(chances), p_value, tuple(right)))
    return results


def _shortcuts(cards: Sequence[TaskCard]) -> Iterator[CardFault]:
    for shortcut in play_shortcuts(cards):
        if shortcut.wins:
            share = f"{shortcut.n_right} of {shortcut.n_guessed}, {shortcut.expected:.1f} by chance"
            yield from (
                CardFault(item, FaultKind.SHORTCUT, f"{shortcut.player} is right ({share})") for item in shortcut.items
            )


def played_faults(
    cards: Sequence[TaskCard], resources: ScoringResources, on_played: Callable[[int, int], None] | None = None
) -> list[CardFault]:
    """The faults of cards whose verifier runs a command. Raises SandboxError if it cannot be contained."""
    scorer, faults = TaskCardScorer(), []
    commanded = [card for card in cards if card.runs_command]
    if not commanded:
        return []
    resources.sandbox.require()
    with sandbox_runner(resources) as runner:
        for number, card in enumerate(commanded, start=1):
            payload, files = payload_of(card), dict(card.initial_state.files)
            for name, after in _lazy_work(card).items():
                score = scorer.score_files(runner, payload, after)
                if score.value == 1.0:
                    faults.append(CardFault(card.id, FaultKind.WEAK_VERIFIER, f"the verifier passes on {name}"))
                    break
            if card.solution:
                untouched = {path: text for path, text in files.items() if path not in card.solution}
                solved = laid_over(untouched, {path: text for path, text in card.solution.items() if text is not None})
                score = scorer.score_files(runner, payload, solved)
                if score.value != 1.0:
                    faults.append(CardFault(card.id, FaultKind.UNSOLVABLE, f"its own solution fails: {score.reason}"))
                elif score.views.get("process_checks_passed") == 0.0:
                    reason = f"its own solution breaks a process check: {score.reason}"
                    faults.append(CardFault(card.id, FaultKind.UNSOLVABLE, reason))
            if on_played is not None:
                on_played(number, len(commanded))
    return faults


def _lazy_work(card: TaskCard) -> Mapping[str, Mapping[str, str]]:
    """Work that is not done, by its name in a message -> files."""
    files = dict(card.initial_state.files)
    if card.success_verifier.type == ANSWER_SCRIPT:
        return {"an empty answer": {**files, ANSWER_FILE: ""}}
    work: dict[str, dict[str, str]] = {"the empty patch": files}
    tests = {path for path in files if re.search(r"(?:^|/)(?:test_|tests?/)|[._](?:test|spec)\.", path)}
    if tests:
        work["the tests deleted"] = {path: text for path, text in files.items() if path not in tests}
    ends = {".py": "import os\nos._exit(0)\n", ".js": "process.exit(0)\n", ".sh": "exit 0\n"}
    touched = set(card.solution) or {path for path in files if path not in tests}
    early = {path: end for path in touched if (end := ends.get(path[path.rfind(".") :])) is not None}
    if early:
        work["a program that ends at once"] = laid_over(files, early)
    return work
