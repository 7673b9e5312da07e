"""An answer without what only marks it up: special tokens, HTML, LaTeX, other widths of the same character."""

import re
import unicodedata
from typing import Literal

_SPECIAL_TOKEN = re.compile(
    r"<[|｜][^<>|｜\n]{1,40}[|｜]>|</?s>|<(?:eos|bos|pad|end_of_turn|start_of_turn)>|\[/?INST\]"
)
_STYLE_TAG = re.compile(
    r"</?(?:b|i|u|em|strong|span|p|div|code|mark|big|small|font|sup|sub|center)\b[^<>\n]{0,100}>|<br\s*/?>", re.I
)
_ANSWER_TAG = re.compile(
    r"<(answer|final_answer|choice|option|final)>((?:(?!<\1>).){0,2000}?)</\1>", re.DOTALL | re.IGNORECASE
)
_LATEX_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal|up)?|math(?:bf|rm|it|sf|tt|bb|cal|normal)|emph|underline|bm|boldsymbol|mbox|hbox)"
    r"\s*\{([^{}]{0,300})\}"
)
_LATEX_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?:\{([^{}]{0,2000})\}|([A-Za-z])(?![A-Za-z]))")
_LATEX_MARK = re.compile(r"\\[()\[\]]|\\(?:left|right|displaystyle|quad|qquad|bf|rm|it|,|;|!|:|\s)(?![A-Za-z])|~")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff\u00ad]")
_FORMULA = re.compile(r"\$\$?([^$\n]{1,300})\$\$?")


def without_marks(text: str, form: Literal["NFC", "NFKC"] = "NFKC") -> str:
    """The text without what only marks it up; what is boxed, or tagged as the answer, is between ⟦ and ⟧.

    form: NFKC also takes other widths, and raised or circled characters, for the plain ones.
    """
    text = _INVISIBLE.sub("", unicodedata.normalize(form, text.replace("⟦", "[").replace("⟧", "]")))
    text = _STYLE_TAG.sub("", _SPECIAL_TOKEN.sub("", text))
    for _ in range(4):  # \boxed{\textbf{(\text{B})}}: from the inside out
        text, n_unwrapped = _LATEX_STYLE.subn(r"\1", text)
        if not n_unwrapped:
            break
    text = _LATEX_BOX.sub(lambda box: f"⟦{box[1] if box[1] is not None else box[2]}⟧", text)
    return _ANSWER_TAG.sub(r"⟦\2⟧", _FORMULA.sub(r"\1", _LATEX_MARK.sub("", text)))
