"""The scorer `choice`: which option of a multiple-choice question an answer names.

Two rules read an answer, and a benchmark names one of them:

last         the default: the last statement of an option. A statement is, in any of the forms that models write,
             "the answer is (B)", "Answer: B", "the correct option is B", "I choose B", "B is correct", a boxed B,
             `<answer>B</answer>`, `{"answer": "B"}`, a line that is a letter and nothing else, or the same sentence in
             German, French, Spanish, Portuguese, Italian, Russian, Chinese, Japanese or Korean. In place of the letter
             it may give the text of exactly one option ("the answer is blue"). Where there is no statement, an answer
             that begins with a letter and the text of its option (`B) blue`) or with a letter and a reason ("B,
             because"), or that is the text of an option, chooses it. What follows a line "Question:" is read only
             where nothing before it chooses
three_steps  those that MMLU-Pro publishes: the first "answer is (B)"; in the first line with "Answer: B", the last one;
             the last capital that stands alone

Promises: marks around a letter (Markdown, LaTeX, HTML, special tokens, other widths of the same character) do not
count. A statement that names no option, or two ("A or B"), chooses nothing, and the search goes on to the others. "a"
and "I" are words unless something shows that they are letters.
Does NOT understand a sentence: "one might think that the answer is B" is read as B where nothing follows it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from agent2.errors import ConfigError, Fault
from agent2.records import Item, Rollout, Score, ScorerOutput
from agent2.scorers.answers import brief
from agent2.scorers.benchmark_labels import BenchmarkLabels
from agent2.scorers.markup import without_marks

RULES = ("last", "three_steps")
MAX_CHARACTERS = 100_000
"""Of an answer, from its end (rule three_steps: from its beginning); the rest is not read."""
MAX_OPTION = 2_000
"""Characters of an option's text that are compared."""

# Every repeat below is bounded: an answer of 100,000 brackets or spaces would else be read for minutes.
_OPEN = r"[(\[{*_`$\"'“‘«「『⟦:=\s]{0,12}"
_SPACE = r"\s{0,6}"
_GAP = r"\s{1,6}"
_MARKS = r"[*_`\"”]{0,4}"
_AFTER_LETTER = r"[)\]}*_`$\"'”’»」』⟧.:]{0,8}"
_CLOSE = r"(?![0-9A-Za-zÀ-ʯͰ-ӿ_+#]|[-'’]\w)"
"""After a letter: neither a word of an alphabet nor a grade ("B+") nor a compound ("B-side"); 「Bです」 is B."""
_NEGATED = re.compile(r"(?:\bnot|n['’]t|\bnever|\bneither)\s{1,6}(?:\w{1,20}\s{1,6})?$", re.IGNORECASE)
_AFTER_WORD = re.compile(
    r"\s{0,6}(?:$|[^\w\s]|"
    r"(?:because|since|as|for|due|given|so|which|where|and|with|is|was|or|weil|da|car|parce|porque|perché)\b)"
)
"""What may follow a bare A or I, which else is a word: "the answer is A good guess"."""
_SECOND = re.compile(
    rf"{_AFTER_LETTER}{_SPACE}(?:,|/|&|\b(?:or|and|oder|und|ou|et|o|y|e|или|и)\b|或|和|と|및){_SPACE}"
    r"[(\[*_$]{0,4}([A-Z])\b(?!['’]\w)"
)
"""A second letter beside the first: the statement chooses neither."""

_ADVERB = "therefore|thus|hence|then|clearly|indeed|probably|likely|definitely|actually|simply|obviously"
_GOOD = "correct|right|best|final|chosen|appropriate|accurate|suitable|selected|likely|true|matching"
_FILLER = (
    rf"(?:{_GAP}(?:to|for|of|from|this|the|that|these|question|problem|choice|option|letter|here|must|should|would|could"
    rf"|so|among|above|following|given|options|choices|is|be|in|my|opinion|{_ADVERB})){{0,8}}"
)
_IS = (
    rf"{_SPACE}{_MARKS}{_SPACE}(?:(?:is|was|be|would{_GAP}be|should{_GAP}be|must{_GAP}be)\b{_SPACE}:?|[:=]|[-=]?>|→|⇒)"
)
_LABEL = (
    rf"(?:(?:{_ADVERB}),?{_GAP})?(?:(?:the{_GAP})?(?:answer|option|choice|letter|statement|alternative)"
    rf"(?!{_GAP}(?:is|was)\b){_SPACE}[:#]?{_SPACE})?"
)


def _head(noun: str, between: str, verb: str, label: str) -> str:
    """The beginning of a statement up to its letter, of a language's words: "Die Antwort auf die Frage ist also"."""
    return (
        rf"\b(?:{noun})(?:{_GAP}(?:{between})){{0,6}}{_SPACE}{_MARKS}{_SPACE}(?:(?:{verb})(?!\w){_SPACE}:?|[:=])"
        rf"{_SPACE}(?:(?:{label}){_SPACE}:?{_SPACE})?{_OPEN}"
    )


_HEADS = (
    rf"\banswer{_FILLER}{_IS}{_SPACE}{_OPEN}{_LABEL}",
    rf"\b(?:{_GOOD}){_GAP}(?:multiple[- ])?(?:option|choice|alternative|statement|response|selection|letter|one)"
    rf"{_FILLER}{_IS}{_SPACE}{_OPEN}{_LABEL}",
    rf"\b(?:i|we)(?:['’]d|['’]ll|{_GAP}would|{_GAP}will|{_GAP}must|{_GAP}should)?(?:{_GAP}(?:have{_GAP}to|confidently|{_ADVERB}))?"
    rf"{_GAP}(?:choose|chose|pick|picked|select|selected|go{_GAP}with|opt{_GAP}for|vote{_GAP}for){_OPEN}{_LABEL}",
    rf"\b(?:most|best|correct|right|therefore|thus|hence|so|likely)\b[^.\n]{{0,80}}?\bis:?{_SPACE}(?=[*_$]{{0,4}}\()",
    _head(
        "antwort|lösung|auswahl|antwortmöglichkeit",
        "auf|zu|die|der|diese|dieser|frage",
        rf"(?:ist|lautet|wäre|wird)(?:{_GAP}(?:daher|also|somit|demnach))?",
        rf"(?:(?:die|der|das){_GAP})?(?:antwort|option|buchstabe|möglichkeit)",
    ),
    _head(
        "réponse",
        "correcte|exacte|juste|finale|à|la|cette|question",
        rf"(?:est|serait)(?:{_GAP}donc)?",
        rf"(?:(?:la|le){_GAP}|l['’]\s?)?(?:option|réponse|lettre|choix|proposition)|la|le",
    ),
    _head(
        "respuesta",
        "correcta|final|adecuada|a|la|esta|pregunta",
        rf"(?:es|sería)(?:{_GAP}(?:entonces|por{_GAP}tanto))?",
        rf"(?:la{_GAP})?(?:opción|respuesta|letra)|la",
    ),
    _head(
        "resposta",
        "correta|certa|final|à|a|para|pergunta",
        rf"(?:é|seria)(?:{_GAP}(?:então|portanto))?",
        rf"(?:a{_GAP})?(?:opção|alternativa|resposta|letra)",
    ),
    _head(
        "risposta",
        "corretta|giusta|esatta|finale|alla|domanda",
        rf"(?:è|sarebbe)(?:{_GAP}quindi)?",
        rf"(?:(?:la){_GAP}|l['’]\s?)?(?:opzione|risposta|lettera)|la",
    ),
    _head("ответ", "на|этот|вопрос|будет", "[—–-]|это", "вариант|ответ"),
    rf"(?:答案|选项|選項|選択肢|正解|答え|解答|回答|정답|답)(?:应该|應該|应|就|番号)?{_SPACE}{_MARKS}{_SPACE}"
    rf"(?:是|为|為|选|選|は|은|는|이|:|=){{1,3}}{_SPACE}(?:选项|選項|選択肢)?{_OPEN}",
    rf"(?:故|所以|因此|应|應){_SPACE}(?:选|選)(?:择|擇)?{_SPACE}(?:选项|選項|:)?{_OPEN}",
)
_HEAD = re.compile("|".join(f"(?:{head})" for head in _HEADS), re.IGNORECASE)
_LETTER = re.compile(rf"(?P<letter>[A-Za-z]){_CLOSE}")
_VERDICT = re.compile(
    rf"(?<![\w'’-])(?P<letter>[A-Z]){_AFTER_LETTER}{_GAP}(?:is|would{_GAP}be|must{_GAP}be){_GAP}"
    rf"(?:(?:{_ADVERB}){_GAP})?(?:the{_GAP})?(?:(?:only|most){_GAP})?(?:{_GOOD})\b"
)
_CONCLUSION = re.compile(
    rf"(?:^|[.!?\n]){_SPACE}(?:so|thus|therefore|hence|∴),?{_SPACE}{_OPEN}"
    rf"(?P<letter>[A-Z]){_AFTER_LETTER}[ \t]{{0,6}}$",
    re.IGNORECASE | re.MULTILINE,
)
_MARKED = re.compile(rf"⟦{_SPACE}{_OPEN}{_LABEL}(?P<content>[^⟦⟧]{{0,2000}})⟧", re.IGNORECASE)
_JSON = re.compile(
    r"[\"'](?:(?:final|correct|my)?[_ ]?(?:answer|choice|option)|letter|response)[_ ]?(?:letter|choice)?[\"']"
    rf"{_SPACE}:{_SPACE}[\"']?{_OPEN}(?P<letter>[A-Za-z])[)\]*_.]{{0,4}}{_SPACE}[\"'}},:]",
    re.IGNORECASE,
)
_BARE_LINE = re.compile(
    rf"^[ \t>#-]{{0,8}}[(\[{{*_`$\"']{{0,8}}{_LABEL}[(\[*_`$]{{0,8}}(?P<letter>[A-Za-z]){_AFTER_LETTER}[ \t]{{0,8}}$",
    re.IGNORECASE | re.MULTILINE,
)
_BEGINNING = re.compile(
    rf"{_SPACE}{_OPEN}(?P<letter>[A-Za-z])[)\]}}*_`]{{0,6}}[).:]?{_MARKS}{_SPACE}(?P<text>\S[^\n]{{0,2000}})"
)
_WITH_REASON = re.compile(
    rf"{_SPACE}{_OPEN}(?P<letter>[A-HJ-Z]){_AFTER_LETTER}(?:,\s|\s[-–—]\s|\s(?:because|since|as|for)\b)"
)
_ALONE = re.compile(rf"(?<![\w'’-])(?P<letter>[A-Z]){_CLOSE}")

_NEXT_QUESTION = re.compile(
    r"\n[ \t#*]{0,6}(?:Question|Q|Frage|Pregunta|Domanda|Вопрос|问题)[ \t]{0,3}\d{0,4}[*_]{0,2}[ \t]?[:：]"
)
"""A base model that is not stopped invents questions of its own behind its answer."""

_PUBLISHED_FIRST = re.compile(r"answer is \(?(?P<letter>[A-J])(?![A-Za-z])")
_PUBLISHED_SECOND = re.compile(r"[aA]nswer:\s{0,100}(?P<letter>[A-J])(?![A-Za-z])")


@dataclass(frozen=True, slots=True)
class Choice:
    """The letter that was read, upper case; None if there is none among the options."""

    letter: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Statement:
    """A place of the text that says which option it is."""

    end: int
    letter: str | None
    """None: it names two options, or something that is none."""
    phrase: str


def chosen_letter(text: str, options: Sequence[str], rule: str = "last") -> Choice:
    """The choice of an answer by one of `RULES`. options: 1 to 26 texts; letters beyond are not options."""
    if rule == "three_steps":
        return _by_published_steps(text[:MAX_CHARACTERS], options)
    next_question = _NEXT_QUESTION.search(text)
    if next_question:
        choice = _by_last_statement(text[: next_question.start()][-MAX_CHARACTERS:], options)
        if choice.letter is not None:
            return choice
    return _by_last_statement(text[-MAX_CHARACTERS:], options)


def _by_last_statement(text: str, options: Sequence[str]) -> Choice:
    letters = ascii_uppercase[: len(options)]
    plain = without_marks(text)
    texts = [_comparable(option) for option in options]
    statements = sorted(_statements(plain, letters, texts), key=lambda statement: statement.end)
    chosen = [statement for statement in statements if statement.letter is not None]
    if chosen:
        return Choice(chosen[-1].letter, f"read after {brief(chosen[-1].phrase, 40)}")
    beginning = _BEGINNING.match(plain)
    if beginning and beginning["letter"].upper() in letters:
        option = texts[ascii_uppercase.index(beginning["letter"].upper())]
        if option and re.match(rf"{re.escape(option)}(?!\w)", _comparable(beginning["text"])):
            return Choice(beginning["letter"].upper(), "a letter and the text of its option")
    reasoned = _WITH_REASON.match(plain)
    if reasoned and reasoned["letter"] in letters and not _SECOND.match(plain, reasoned.end("letter")):
        return Choice(reasoned["letter"], "a letter and a reason at the beginning")
    letter = _letter_of_text(_comparable(plain), texts, whole=True)
    if letter is not None:
        return Choice(letter, "the text of an option")
    if statements:
        return Choice(
            None, f"{brief(statements[-1].phrase, 40)} names none of the options A to {letters[-1]}, or several"
        )
    return Choice(None, f"no statement of an option from A to {letters[-1]} in {brief(text, 40)}")


def _statements(plain: str, letters: str, texts: Sequence[str]) -> Iterator[_Statement]:
    """Every statement of the text, in no order; those that name no single option, too."""
    for head in _HEAD.finditer(plain):
        if not _NEGATED.search(plain[max(0, head.start() - 20) : head.start()]):
            yield _named_at(plain, head.end(), head.group(), letters, texts)
    for pattern in (_VERDICT, _CONCLUSION, _JSON, _BARE_LINE):
        for match in pattern.finditer(plain):
            letter = match["letter"].upper()
            if pattern is _BARE_LINE and match["letter"] in "ai" and match.group().strip() == match["letter"]:
                is_alone = not plain[: match.start()].strip() and not plain[match.end() :].strip()
                letter = letter if is_alone else ""
            if letter in letters:
                yield _Statement(match.end(), letter or None, match.group().strip())
    for match in _MARKED.finditer(plain):
        named = _named_at(match["content"] + "\n", 0, match.group(), letters, texts)
        yield _Statement(match.end(), named.letter, match.group().strip())


def _named_at(plain: str, start: int, phrase: str, letters: str, texts: Sequence[str]) -> _Statement:
    """What a text names from `start` on: a letter, or the text of one option up to the end of the sentence."""
    opening = re.compile(_OPEN).match(plain, start)
    start = opening.end() if opening else start
    before = plain[start - 1 : start]
    match = _LETTER.match(plain, start)
    if match:
        letter, following = match["letter"], plain[match.end() : match.end() + 40]
        is_marked = before in tuple("([{*_`$\"'“‘«「『⟦") or following[:1] in tuple(")]}*_`$\"'”’»」』⟧")
        is_letter = is_marked or not following.strip(" .,;:!") or following.lstrip(" ")[:1] in tuple(".,;:!)\n。")
        if letter.isupper() and not is_letter:
            is_letter = letter not in "AI" or bool(_AFTER_WORD.match(following))
        second = _SECOND.match(plain, match.end())
        if is_letter and letter.upper() in letters:
            if second and second[1] in letters and second[1] != letter.upper():
                return _Statement(second.end(), None, phrase)
            return _Statement(match.end(), letter.upper(), phrase.strip())
        if is_letter and letter.isupper() and not following.lstrip()[:1].isalnum():
            return _Statement(match.end(), None, phrase)
    sentence = re.compile(r"[^\n]{0,400}").match(plain, start)
    stated = sentence.group() if sentence else ""
    return _Statement(start, _letter_of_text(_comparable(stated), texts, whole=False), phrase.strip())


def _letter_of_text(stated: str, texts: Sequence[str], whole: bool) -> str | None:
    """The option whose text this is, or (not whole) begins with; the longest one. None: no option's, or of two."""
    stated = stated.strip(" .,;:!*_`\"'()[]")
    fits = [
        (len(text), index)
        for index, text in enumerate(texts)
        if text and (stated == text if whole else re.match(rf"{re.escape(text)}(?![\w])", stated))
    ]
    longest = max(fits, default=(0, 0))[0]
    named = [index for length, index in fits if length == longest]
    return ascii_uppercase[named[0]] if len(named) == 1 else None


def _by_published_steps(text: str, options: Sequence[str]) -> Choice:
    """Source: `compute_accuracy.py` of MMLU-Pro (Wang et al. 2024, arXiv:2406.01574).

    Departures: a letter that names no option, or begins a word ("answer is Cannot be"), is passed over in each step,
    where the published patterns take it, or stop there.
    """
    letters = ascii_uppercase[: len(options)]
    for match in _PUBLISHED_FIRST.finditer(text):
        if match["letter"] in letters:
            return Choice(match["letter"], "read after 'answer is'")
    stated = [match for match in _PUBLISHED_SECOND.finditer(text) if match["letter"] in letters]
    if stated:
        n_in_line = sum("\n" not in text[stated[0].start() : match.start()] for match in stated)
        return Choice(stated[n_in_line - 1]["letter"], "read after 'Answer:'")
    letter = last_letter(text, len(options))
    if letter is not None:
        return Choice(letter, "the last letter that stands alone")
    return Choice(None, f"no letter from A to {letters[-1]} in {brief(text, 40)}")


def last_letter(text: str, n_options: int) -> str | None:
    """The last isolated capital letter that names an option; None if there is none."""
    options = ascii_uppercase[:n_options]
    letters = [match["letter"] for match in _ALONE.finditer(text[-MAX_CHARACTERS:]) if match["letter"] in options]
    return letters[-1] if letters else None


def _comparable(text: str) -> str:
    """As texts of options are compared: without marks, case and repeated white space."""
    return " ".join(without_marks(text[:MAX_OPTION]).casefold().replace("⟦", "").replace("⟧", "").split())


class ChoiceScorer(BenchmarkLabels):
    """1.0 if the chosen letter is the reference.

    rule: one of `RULES`. The item's payload has the `options`. Views: `answer_parsed`, `flexible_match` (also accepts
    the last isolated letter), and `chose_a`, `chose_b` ... one of which is 1, which show a preference for a position.
    Labels: `mmlu_answer_parse_fail` or `mmlu_wrong_choice`, on data beside MMLU with their name instead of `mmlu`.
    """

    name = "choice"
    label_prefix = "mmlu_"
    version = "2.0"
    emits = ScorerOutput(
        views=frozenset({"answer_parsed", "flexible_match", *(f"chose_{letter}" for letter in ascii_lowercase)}),
        labels=frozenset({"mmlu_answer_parse_fail", "mmlu_wrong_choice"}),
    )
    expects = "the letter of an option, as in 'The answer is (C)'"

    def __init__(self, rule: str = "last") -> None:
        """Raises ConfigError for a rule that does not exist."""
        if rule not in RULES:
            raise ConfigError(f"scorer choice: rule {rule!r} is unknown; it is one of {', '.join(RULES)}")
        self._rule = rule
        if rule != "last":
            self.version = f"2.0-{rule}"

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's reference or options are unusable."""
        options = _options(item.payload)
        n_options = None if options is None else len(options)
        expected = (item.reference or "").strip().upper()
        if options is None or n_options is None or len(expected) != 1 or expected not in ascii_uppercase[:n_options]:
            return Score(
                None,
                f"item {item.id}: reference {item.reference!r} names none of {n_options} options; correct it",
                Fault.JUDGE,
            )
        text = rollout.answer or ""
        choice = chosen_letter(text, options, self._rule)
        flexible = choice.letter or last_letter(text, n_options)
        views: dict[str, float | None] = {
            "answer_parsed": float(choice.letter is not None),
            "flexible_match": float(flexible == expected),
        }
        for letter in ascii_uppercase[:n_options]:
            views[f"chose_{letter.lower()}"] = float(choice.letter == letter)
        if choice.letter == expected:
            return Score(1.0, f"{expected} is the reference", views=views, extracted=expected)
        if choice.letter is None:
            return Score(0.0, choice.reason, views=views, labels=(self.label("mmlu_answer_parse_fail"),))
        reason = f"{choice.letter} is not the reference {expected}"
        labels = (self.label("mmlu_wrong_choice"),)
        return Score(0.0, reason, views=views, labels=labels, extracted=choice.letter)


def _options(payload: Mapping[str, object]) -> list[str] | None:
    options = payload.get("options")
    texts = list(map(str, options)) if isinstance(options, list | tuple) else []
    return texts if 1 <= len(texts) <= len(ascii_uppercase) else None  # MMLU-Pro has five questions with one
