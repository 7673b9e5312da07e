"""Names in a text: runs of capitalised words, without those that are capitals for another reason.

A word is also capitalised where a sentence, a line, a list item or a value behind a colon or bracket begins, and in
headings. There a single word counts as a name only where something else speaks for it, and never if it is an ordinary
word: one of a list, or one with an ending that words have and names rarely do ("Additionally", "Calculation").

Does NOT know names: a capitalised phrase of other ordinary words in the middle of a sentence ("our Gold Card") is one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

HEADING = re.compile(r"^[^\S\n]*#{1,6}[^\S\n].*$", re.MULTILINE)
_LABEL = re.compile(r"^[^\S\n]*(?:(?:[-*\u2022]|\d+[.)])[^\S\n]*)?\**[A-Z][\w /()-]{0,40}\**:\**", re.MULTILINE)
_TOKEN = re.compile(r"[^\W\d_][\w'\u2019-]*")
_SENTENCE = re.compile(r"(?<=[.!?])[\"\u201d*)]*\s+|\n+")
_FOLLOWS_A_NAME = re.compile(
    r"\s+(?:is|was|has|had|are|were|will|does|founded|said|says|lives|works|costs?|and|or)\b|'s\b|,"
)
_VALUE_BEGINS = re.compile(r"[:(\u2013\u2014][\"\u201c]?\s*$")
_VALUE_ENDS = re.compile(r"\s*(?:[).,;/|\u2013\u2014]|$)")
_CODE = re.compile(r"\s?\(([A-Z]{2,4})\)")
_ORDINARY_ENDING = re.compile(
    r"\w{3,}(?:al|te|nt|ab|us|ar|ed|ive|ari|ful|ct|st|ss|gh)ly|\w{6,}ing|\w{4,}(?:tion|sion|ment|bility)s?|\w{3,}ness|\w{3,}less"
)
_PARTICIPLE = re.compile(r"\w{3,}ed")


def word_set(text: str) -> frozenset[str]:
    """The words of a text; makes constants of word lists, and so stands before them."""
    return frozenset(text.split())


_NO_NAMES = word_set(
    """
    i a an the this that these those it its he she they we you your my our their his her there here yes no not
    none ok okay and or but if when where who what which why how so then thus also as at by for from in into of
    on to with after before all any both each every some one done note please sorry thanks thank however
    therefore because since let sure great unfortunately currently unknown answer total result results api apis
    url urls id ids json http https sql usd eur pdf csv html faq mr mrs ms dr n/a na tbd hello hi regarding
    based according source sources reference references am pm am. pm. found nothing only both neither nobody
    everything could would can may i'm i've i'll it's that's there's here's don't can't couldn't let's you're
    yours he's she's we're they're is was are were has had will do does did booked ordered cancelled canceled
    updated refunded sent created deleted moved
    """
)
_ORDINARY = word_set(
    """
    now next today tomorrow yesterday tonight first second third last lastly meanwhile otherwise instead moreover
    furthermore besides overall again once while although though unless until during per due just still yet perhaps
    maybe indeed hence apologies welcome good perfect excellent great certainly alright right correct true false
    step option options summary details detail price prices cost costs fee fees total subtotal amount balance
    payment payments refund refunds booking bookings ticket tickets order orders item items date dates time times
    number name status type available unavailable departure arrival return outbound insurance difference
    additional remaining current new old free out up off over under sold paid sent given done left via plus minus
    let's here's that's it'll we'll you'll they'll given pricing billing shipping starting considering assuming
    being having going everyone someone nothing anything something people customers users
    """
)
"""Words that begin sentences, lines and values in the messages of assistants."""


@dataclass(frozen=True, slots=True)
class WrittenName:
    """A name in a text."""

    text: str
    opens: bool = False
    """Several words at the start of a sentence, where the first may be capitalised for that reason."""
    code: str = ""
    """The code in brackets behind it, "LAX" of "Los Angeles (LAX)"."""


def is_ordinary(word: str) -> bool:
    """Whether a word is an ordinary one, by a list or its ending."""
    folded = word.casefold()
    return folded in _NO_NAMES or folded in _ORDINARY or _ORDINARY_ENDING.fullmatch(folded) is not None


def is_descriptive(word: str) -> bool:
    """Whether a word of a longer name only describes: "Added" in "Checked Bag Added"."""
    return is_ordinary(word) or _PARTICIPLE.fullmatch(word.casefold()) is not None


def names_of(text: str) -> Iterator[WrittenName]:
    """The names in a text, in order."""
    whole_text = text.strip(' .*"')
    # A label stays as one small word, so that its value does not open a sentence.
    for sentence in _SENTENCE.split(_LABEL.sub("label: ", HEADING.sub(" ", text))):
        tokens = list(_TOKEN.finditer(sentence))
        start = 0
        while start < len(tokens):
            end = start + 1
            if _is_capitalised(tokens[start]):
                while end < len(tokens) and _is_capitalised(tokens[end]) and _is_next(sentence, tokens, end):
                    end += 1
                name = _without_edges(tokens[start:end])
                if name and _is_name(name, sentence, opens=name[0].start() == tokens[0].start()):
                    yield _written(name, sentence, opens=name[0].start() == tokens[0].start())
                elif len(name) == 1 and whole_text == name[0][0] and not _is_code(name):  # an answer may be it alone
                    yield WrittenName(name[0][0])
            start = end


def _is_capitalised(token: re.Match[str]) -> bool:
    return token[0][0].isupper()


def _is_next(sentence: str, tokens: list[re.Match[str]], index: int) -> bool:
    return sentence[tokens[index - 1].end() : tokens[index].start()] == " "


def _without_edges(name: list[re.Match[str]]) -> list[re.Match[str]]:
    """A run of words without those at its ends that are in no name."""
    while name and name[0][0].casefold() in _NO_NAMES:
        name = name[1:]
    while name and name[-1][0].casefold() in _NO_NAMES:
        name = name[:-1]
    return name


def _is_code(name: list[re.Match[str]]) -> bool:
    return len(name) == 1 and re.fullmatch(r"[A-Z]{2,4}|[A-Z-]{5,}", name[0][0]) is not None


def _is_name(name: list[re.Match[str]], sentence: str, *, opens: bool) -> bool:
    if _is_code(name):
        return False
    if len(name) > 1:
        return not all(is_descriptive(token[0]) for token in name)
    word, start, end = name[0][0], name[0].start(), name[0].end()
    follows = _FOLLOWS_A_NAME.match(sentence, end) is not None
    if opens:
        return follows and not is_ordinary(word)
    if _VALUE_BEGINS.search(sentence[:start]):
        is_whole_value = _VALUE_ENDS.match(sentence, end) is not None
        return (follows or is_whole_value) and not is_descriptive(word)
    return True


def _written(name: list[re.Match[str]], sentence: str, *, opens: bool) -> WrittenName:
    text = re.sub(r"['\u2019]s$", "", sentence[name[0].start() : name[-1].end()])
    code = _CODE.match(sentence, name[-1].end())
    return WrittenName(text, opens, "" if code is None else code[1])
