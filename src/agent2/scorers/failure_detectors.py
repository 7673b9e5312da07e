"""Classes of bad cases that no scorer gives: what a rollout's own text shows.

Each detector is cheap enough for every rollout of a card of a million. They are rules of thumb with a known direction
of error: a class that they miss stays with the scorer's own, and the thresholds are set so that ordinary answers stay
out (`docs/labels.md` has precision and recall of each). Does NOT judge whether a refusal is right. A refusal is
recognised in English only; two languages of one script are told apart where the prompt is English.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from agent2.records import RolloutStatus, ScoredRollout, StopReason
from agent2.scorers.constraints.languages import language_probabilities, plain_language
from agent2.stats.agent_metrics import repeated_share

REPEATED_SHARE = 0.3
"""Of runs of four words; ordinary prose stays below 0.1."""
COUNTED_SHARE = 0.6
"""The same, where numbers are not told apart."""
MIN_NUMBERS = 10
"""In an answer that counts on and on."""
MIN_WORDS = 20
"""A shorter text repeats itself by being short."""
SCANNED = 4000
"""Characters of an answer that are looked at, from its end: loops go on until the tokens are spent."""
FOREIGN_SHARE = 0.2
"""Of an answer's letters."""
MIN_FOREIGN = 4
_DECLINED = (
    r"(?:\w+ly |to |in a position to ){0,2}(?:help|assist|provide|comply|fulfil|fulfill|answer|discuss|support|create|"
    r"generate|write|engage|participate|recommend|endorse|suggest|summari[sz]e|determine|calculate|predict|"
    r"categori[sz]e|classify|offer|give|share|form an|complete|process|browse|access|do (?:that|this|so)|perform|"
    r"produce|cancel|waive|make (?:judgments|an exception)|directly|accurately|reliably|definitively)\b"
)
"""What a refusal says is not done."""
_REFUSAL = re.compile(
    r"\b(?:I|we)(?:'m| am| are)?,? (?:(?:must|do|really|simply|also|therefore|currently|actually) ){0,2}(?:"
    rf"(?:can(?:no|')t|can not|won't|will not|unable to|not (?:able|allowed|permitted|going) to|should not|shouldn't|"
    rf"(?:not|don't|do not) feel comfortable|not comfortable|not equipped) {_DECLINED}|"
    r"(?:must |have to )?(?:decline|refuse)\b|"
    r"(?:do not|don't|not) (?:actually |currently |yet )?(?:know\b|have (?:access|enough|sufficient|the |any |personal "
    r"experience|real-time|capabilit|information|context)))"
    rf"|\b(?:cannot|can't|unable to) (?:answer|complete|fulfil|fulfill|comply|assist|help) "
    r"|\bas an AI(?: language model| assistant)?,? I (?:can|am|do)(?:no|')t? (?:able|do|write|help|provide|"
    r"answer|assist)",
    re.IGNORECASE,
)
_REFUSAL_MARKS = ("not", "n't", "n\u2019t", "unable", "decline", "refuse", "as an ai")
"""One of them is in every text that `_REFUSAL` finds; looked for first, as most texts have none."""
_OPENING = 300
"""Characters from the start in which a refusal stands."""
_GOES_ON = re.compile(
    r"\b(?:here(?:'s| is| are)|(?:however|but|instead|that said),? (?:some|a few|I can (?:give|certainly|share|explain|"
    r"tell|curate|create|write|draft|list)|I(?:'ll| will))|such as:|include:|following:)|```",
    re.IGNORECASE,
)
_GENERAL = re.compile(r"\bgeneral (?:\w+ ){0,2}(?:tips|guidelines|guidance|advice|points|information)\b", re.IGNORECASE)
"""What stands in place of the thing that was asked for."""
MIN_GONE_ON = 60
"""Words of an answer that refuses and then does what was asked."""
_SCRIPTS = MappingProxyType(
    {
        "han": re.compile(r"[\u4e00-\u9fff\u3400-\u4dbf]"),
        "kana": re.compile(r"[\u3040-\u30ff]"),
        "hangul": re.compile(r"[\uac00-\ud7af]"),
        "cyrillic": re.compile(r"[\u0400-\u04ff]"),
        "arabic": re.compile(r"[\u0600-\u06ff]"),
        "hebrew": re.compile(r"[\u0590-\u05ff]"),
        "devanagari": re.compile(r"[\u0900-\u097f]"),
        "thai": re.compile(r"[\u0e00-\u0e7f]"),
    }
)
_LETTERS = re.compile(r"[^\W\d_]")
_ASKS_LANGUAGE = re.compile(
    r"\b(?:translat\w*|chinese|mandarin|cantonese|japanese|korean|russian|ukrainian|bulgarian|serbian|arabic|persian|"
    r"urdu|hebrew|hindi|marathi|nepali|thai|language)\b",
    re.IGNORECASE,
)
_SCRIPTS_OF: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys(("chinese", "mandarin", "cantonese"), frozenset({"han"})),
        "japanese": frozenset({"han", "kana"}),
        "korean": frozenset({"hangul", "han"}),
        **dict.fromkeys(("russian", "ukrainian", "bulgarian", "serbian"), frozenset({"cyrillic"})),
        **dict.fromkeys(("arabic", "persian", "urdu"), frozenset({"arabic"})),
        "hebrew": frozenset({"hebrew"}),
        **dict.fromkeys(("hindi", "marathi", "nepali"), frozenset({"devanagari"})),
        "thai": frozenset({"thai"}),
    }
)
"""Language that a prompt names -> scripts of `_SCRIPTS` that it is written in."""
_ASKS_ANY_LANGUAGE = re.compile(
    r"\b(?:translat\w*|language|\w+ese|spanish|french|german|italian|dutch|polish|turkish|finnish|swedish|danish|"
    r"norwegian|czech|hungarian|romanian|indonesian|malay|swahili|latin|greek|catalan|welsh|irish|esperanto)\b",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[^\W\d_]+")
_CODE = re.compile(r"[{};=<>\\$]|\bdef |\bimport ")
"""Code and formulas, whose words are of no language."""
_ENGLISH_WORDS = """
    the of and to is in that it for you with on are this be as was have not at by from or an but they we he she his her
    their which will can has had would there been if when who what so no all my your me do i its our were a more about
    up them then than into could should how one write give answer
"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
PLAINLY_ENGLISH, N_PLAINLY = (" the ", " and ", " of ", " is ", " to "), 4
"""A message with so many of them is English; the cheap test that nearly all messages end with."""
ENGLISH_SHARE = 0.15
"""Everyday English words in an English prompt, at least."""
FEW_ENGLISH = 0.1
"""And in a message of another language, at most."""
MIN_SWITCHED = 8
"""Words of a message below which its language isn't asked for."""
SURE = 0.9
MIN_CUT_OFF, MIN_LAST_LINE = 30, 8
"""Words of a text, and of its last line, from which on a missing full stop says something."""
_SENTENCE_END = re.compile(r"[.!?]\s+[A-Z(\\$]")
_LIST_LINE = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s|#\w+$")
"""Needs no full stop: an entry of a list, a line of hashtags."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

Detector = Callable[[ScoredRollout], bool]


def last_text(record: ScoredRollout) -> str:
    """What the model wrote last: its last message, else the final answer."""
    rollout = record.rollout
    return rollout.turns[-1].action if rollout.turns else (rollout.answer or "")


def is_empty(record: ScoredRollout) -> bool:
    """Every message is blank, or there is none."""
    return all(not turn.action.strip() for turn in record.rollout.turns)


def is_truncated(record: ScoredRollout) -> bool:
    """The last message was cut off by the limit of tokens, or reads so where nobody counted its tokens."""
    turns = record.rollout.turns
    if not turns or turns[-1].stop_reason is not StopReason.END:
        return bool(turns) and turns[-1].stop_reason is StopReason.LENGTH
    return turns[-1].completion_tokens is None and _reads_cut_off(turns[-1].action)


def _reads_cut_off(text: str) -> bool:
    """Prose that ends its sentences and stops in the middle of one, or inside a formula."""
    text = text[-SCANNED:].rstrip()
    last_line = text.rpartition("\n")[2]
    if len(text.split()) < MIN_CUT_OFF or _SENTENCE_END.search(text) is None or _LIST_LINE.search(last_line):
        return False
    formula = last_line.rpartition("$")[2]
    is_inside_formula = last_line.count("$") % 2 == 1 and "\\" in formula
    return is_inside_formula or (len(last_line.split()) >= MIN_LAST_LINE and text[-1].isalpha())


def is_repetitive(record: ScoredRollout) -> bool:
    """The last message goes round in circles: three in ten of its runs of four words came before in it.

    Or six in ten where any number counts as any other: lists that count on and on, sums of sums.
    """
    text = last_text(record)[-SCANNED:]
    if len(text) <= MIN_WORDS or len(text.split()) < MIN_WORDS:
        return False
    if repeated_share(text) >= REPEATED_SHARE:
        return True
    masked, n_numbers = _NUMBER.subn("0", text)
    return n_numbers >= MIN_NUMBERS and repeated_share(masked) >= COUNTED_SHARE


def is_refusal(record: ScoredRollout) -> bool:
    """The last message opens by saying, in English, that what was asked for is not done or cannot be, and it isn't."""
    text = last_text(record)
    opening_text = text[:_OPENING].lower()
    if not any(mark in opening_text for mark in _REFUSAL_MARKS):
        return False
    text = text[:SCANNED].replace("\u2019", "'")
    opening = _REFUSAL.search(text[:_OPENING])
    if opening is None:
        return False
    continuation = text[opening.end() :]
    return (
        len(continuation.split()) < MIN_GONE_ON
        or _GOES_ON.search(continuation) is None
        or _GENERAL.search(continuation) is not None
    )


def is_in_another_language(record: ScoredRollout) -> bool:
    """The last message is in a language that the prompt neither uses nor asks for.

    A fifth of its letters are of another script; or prompt and message are of Latin letters, the prompt is English, and
    the message has hardly an English word and is in another language by `langdetect`.
    """
    text = last_text(record)[:SCANNED]
    prompt = "\n".join(message.text for message in record.rollout.prompt)
    script = None if text.isascii() else _foreign_script(text, prompt)
    if script is not None:
        languages = _ASKS_LANGUAGE.findall(prompt)
        scripts_asked_for = [_SCRIPTS_OF[word] for word in map(str.lower, languages) if word in _SCRIPTS_OF]
        return not languages or (bool(scripts_asked_for) and script not in frozenset().union(*scripts_asked_for))
    return _is_latin_switch(text, prompt)


def _foreign_script(text: str, prompt: str) -> str | None:
    n_letters = len(_LETTERS.findall(text))
    for name, script in _SCRIPTS.items():
        n_foreign = len(script.findall(text))
        if n_foreign >= max(MIN_FOREIGN, FOREIGN_SHARE * n_letters) and not script.search(prompt):
            return name
    return None


def _is_latin_switch(text: str, prompt: str) -> bool:
    if sum(map(text[:1_000].count, PLAINLY_ENGLISH)) >= N_PLAINLY:
        return False
    message_words, prompt_words = _WORDS.findall(text[:1_000].lower()), _WORDS.findall(prompt[-1_000:].lower())
    if len(message_words) < MIN_SWITCHED or not prompt_words or _CODE.search(text):
        return False
    is_asked_in_english = sum(map(_ENGLISH.__contains__, prompt_words)) >= ENGLISH_SHARE * len(prompt_words)
    is_english = sum(map(_ENGLISH.__contains__, message_words)) > FEW_ENGLISH * len(message_words)
    if is_english or not is_asked_in_english or _ASKS_ANY_LANGUAGE.search(prompt):
        return False
    if (plain := plain_language(text[:1_000])) is not None:
        return plain != "en"
    probabilities = language_probabilities(text[:1_000])
    likeliest = next(iter(probabilities), "en")
    return likeliest != "en" and probabilities[likeliest] >= SURE


def is_paid_for_its_form(record: ScoredRollout) -> bool:
    """The training reward is at least half, and the score is nothing."""
    reward = record.score.views.get("reward")
    return reward is not None and reward >= 0.5 and record.score.value == 0.0


DETECTORS: Mapping[str, Detector] = MappingProxyType(
    {
        "empty_output": is_empty,
        "truncated": is_truncated,
        "repetition": is_repetitive,
        "refusal": is_refusal,
        "language_switch": is_in_another_language,
        "format_without_content": is_paid_for_its_form,
    }
)
"""Class of bad cases -> whether a rollout is in it."""


def is_detected(label: str, record: ScoredRollout) -> bool:
    """Whether a rollout that was played to its end is in one of the classes of `DETECTORS`."""
    return record.rollout.status is not RolloutStatus.FAILED and DETECTORS[label](record)


def detected(record: ScoredRollout) -> list[str]:
    """The classes of a rollout that was played to its end; empty for one that failed."""
    if record.rollout.status is RolloutStatus.FAILED:
        return []
    return [label for label, is_in_class in DETECTORS.items() if is_in_class(record)]
