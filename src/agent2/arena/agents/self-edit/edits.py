"""General edits of a text's form: what a writer could do to any text, whatever was asked for.

`forms` are plain beginnings of a text; `edits_for` lists the edits of `TABLE` that its words and its request allow;
`edited` applies some of them in the order of the table. Does NOT know what a task asks for or which edit helps: the
search finds out from the verifier.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise

MOST_WORDS = 24
"""Of a text's own; short ones are sampled and learned in less time."""
LEAST_WORDS = 4
"""Fewer are not a text."""
LENGTHS = (24, 16, 12, 9, 6, 4)
"""Words of the beginnings of a first sentence."""
_MIRRORED = str.maketrans("<([{>)]}", ">)]}<([{")


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """One edit of the table with its argument; edits are ordered as they are applied."""

    place: int
    """In the table."""
    argument: str = ""

    def __str__(self) -> str:
        """What it does, for a log."""
        return f"{TABLE[self.place].name} {self.argument!r}" if self.argument else TABLE[self.place].name


@dataclass(frozen=True, slots=True)
class EditKind:
    """A row of the table."""

    name: str
    apply: Callable[[str, str], str | None]
    """From a text and the argument to the edited text; None: it changes nothing or cannot be done."""
    arguments: Callable[[str, str], Sequence[str]] = field(default=lambda request, text: ("",))
    """From the request and a text to the arguments that are worth trying."""


def forms(written: str) -> list[str]:
    """Plain beginnings of a text from the longest to the shortest: whole sentences, or else words of the first.

    Empty where the text has fewer than four words of its own.
    """
    sentences = [sentence.split() for sentence in plain_sentences(written)]
    plain = list(chain(*sentences))
    if not plain:
        return []
    lengths = {*accumulate(map(len, sentences)), *(n for n in LENGTHS if n < len(sentences[0]))}
    possible = sorted((n for n in lengths if LEAST_WORDS <= n <= MOST_WORDS), reverse=True)
    return [finished(" ".join(plain[:length])) for length in possible]


def plain_sentences(text: str) -> list[str]:
    """The sentences without marks, titles and lists, up to where three words are said again."""
    tokens = plain_tokens(text)
    text = " ".join(tokens[: length_without_repetition(tokens)])
    return [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if re.search(r"\w", sentence)]


def plain_tokens(text: str) -> list[str]:
    """What blanks divide, without marks, titles and lists."""
    text = re.sub(r"<<[^>]*>>|^\s*(?:[-*•]|\d+\.)\s", " ", text, flags=re.MULTILINE)
    return re.sub(r'[*"#<>`_\[\](){}|~“”]', " ", text).split()


def words_of(tokens: Sequence[str]) -> list[str]:
    """Lower case, letters and digits only; one for each token."""
    return [re.sub(r"\W", "", token).lower() for token in tokens]


def length_without_repetition(tokens: Sequence[str]) -> int:
    """Words before three in a row occur again: a small model that repeats itself goes on to its last token."""
    plain = words_of(tokens)
    earlier: set[tuple[str, ...]] = set()
    for start in range(len(plain) - 2):
        three = tuple(plain[start : start + 3])
        if three in earlier:
            return start
        earlier.add(three)
    return len(tokens)


def finished(text: str) -> str:
    """The text as whole sentences: a capital in front, a full stop behind."""
    text = " ".join(text.split()).strip(" .,;:-!?")
    return f"{text[:1].upper()}{text[1:]}."


def edits_for(request: str, form: str) -> list[Edit]:
    """All edits that are worth trying on a plain form of an answer to a request, in the order of the table."""
    return [
        Edit(place, argument)
        for place, kind in enumerate(TABLE)
        for argument in dict.fromkeys(kind.arguments(request, form))
    ]


def edited(form: str, edits: Sequence[Edit]) -> str | None:
    """A form with edits, in the order of the table; None where one cannot be done or too little of the form is left."""
    text = form
    for edit in sorted(edits):
        changed = TABLE[edit.place].apply(text, edit.argument)
        if changed is None:
            return None
        text = changed
    return text if still_says(text, form) else None


def still_says(text: str, form: str) -> bool:
    """Whether a text has at least four words of its form and says no three words in a row twice."""
    tokens = re.sub(r'[*"<>_()\[\]{}]', " ", text).split()
    own_words = Counter(words_of(tokens)) & Counter(words_of(form.split()))
    own_words.pop("", None)
    return own_words.total() >= LEAST_WORDS and length_without_repetition(tokens) == len(tokens)


def quoted_spans(request: str) -> list[str]:
    """What a request says word by word: what it has in quotation marks."""
    return [span.strip() for span in re.findall(r'"([^"]+)"', request) if re.search(r"\w", span)]


def spans_of(request: str) -> list[str]:
    """What a request spells out: quoted spans, and tokens with a mark between their letters, such as `e.g.`."""
    return quoted_spans(request) + re.findall(r"(?<![^\s\"])\w+(?:[^\w\s\"]\w+)+[^\w\s\",;:!?]?", request)


def marks_of(request: str, form: str) -> list[str]:
    """Marks that open a pair: quotation mark, asterisk, and those that the request itself puts around words."""
    mirrored_in_request = [
        match[1]
        for match in re.finditer(r"(?<!\w)([^\w\s]+)(?=\w)", request)
        if request.find(mirrored(match[1]), match.end()) > 0
    ]
    return list(dict.fromkeys(['"', "*", *mirrored_in_request]))


def mirrored(marks: str) -> str:
    """The marks that close what others open: `>>` for `<<`, `*` for `*`."""
    return marks[::-1].translate(_MIRRORED)


def longest_word(text: str) -> str | None:
    """The first of the longest words; None: there is none."""
    return max(re.findall(r"\w[\w'’]*", text), key=len, default=None)


def without_character(text: str, character: str) -> str | None:
    """Without one punctuation mark."""
    return finished(text.replace(character, "")) if character in text else None


def without_word(text: str, word: str) -> str | None:
    """Without a word, wherever it occurs."""
    shorter = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "", text, flags=re.IGNORECASE)
    return finished(re.sub(r"\s+([,.;:!?])", r"\1", shorter)) if shorter != text else None


def after_span(text: str, span: str) -> str:
    """With a span of the request in front, as what the text is about."""
    return f"{span[0].upper()}{span[1:]}: {text}"


def in_lines(text: str, count_and_bullet: str) -> str | None:
    """Divided into so many lines of nearly equal length, each with a bullet."""
    n_lines, bullet = int(count_and_bullet[0]), count_and_bullet[1:]
    tokens = text.split()
    cuts = [round(number * len(tokens) / n_lines) for number in range(n_lines + 1)]
    if len(tokens) < 2 * n_lines:
        return None
    lines = [" ".join(tokens[start:stop]) for start, stop in pairwise(cuts)]
    return "\n".join(f"{bullet.replace('1', str(number))}{line}" for number, line in enumerate(lines, 1))


def half_after_span(text: str, span: str) -> str | None:
    """The second half of the last line on a line of its own, after a span of the request."""
    before, newline, last = text.rpartition("\n")
    tokens = last.split()
    cut = (len(tokens) + 1) // 2
    if len(tokens) < 4:
        return None
    return f"{before}{newline}{' '.join(tokens[:cut])}\n{span} {' '.join(tokens[cut:])}"


def word_in_front(text: str, marks: str) -> str | None:
    """With its longest word in a pair of marks, on a line in front."""
    word = longest_word(text)
    return None if word is None else f"{marks}{word.capitalize()}{mirrored(marks)}\n{text}"


def word_in_marks(text: str, marks: str) -> str | None:
    """With the longest word of the last line in a pair of marks."""
    before, newline, last = text.rpartition("\n")
    word = longest_word(last)
    if word is None:
        return None
    return before + newline + last.replace(word, f"{marks}{word}{mirrored(marks)}", 1)


def words_left_out(request: str, form: str) -> list[str]:
    """Words of a request that occur in a form, quoted ones first."""
    candidates = dict.fromkeys([*quoted_spans(request), *re.findall(r"\w+", request.lower())])
    return [word for word in candidates if without_word(form, word) is not None]


TABLE = (
    EditKind("leave out the mark", without_character, lambda request, form: sorted({*re.findall(r"[^\w\s.]", form)})),
    EditKind("leave out the word", without_word, words_left_out),
    EditKind("begin with", after_span, lambda request, form: quoted_spans(request)),
    EditKind(
        "divide into lines",
        in_lines,
        lambda request, form: [f"{n}{bullet}" for n in (2, 3, 4) for bullet in ("* ", "- ", "1. ")],
    ),
    EditKind("last words after", half_after_span, lambda request, form: spans_of(request)),
    EditKind("a word in front in marks", word_in_front, marks_of),
    EditKind("marks around a word", word_in_marks, marks_of),
    EditKind("end with", lambda text, span: f"{text}\n{span}", lambda request, form: quoted_spans(request)),
    EditKind("lower case", lambda text, _: text.lower()),
    EditKind("upper case", lambda text, _: text.upper()),
    EditKind("quotation marks around the whole", lambda text, _: f'"{text}"'),
)
"""What any writer could do to a text, from its words to its outer form."""
