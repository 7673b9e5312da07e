"""A text without what disguises it (characters that are not seen, look-alikes of Latin letters, HTML), and its words.

Two texts that look the same on a page come out the same: HTML entities (also those of entities) and tags inside a line
are resolved, characters without a shape of their own (zero-width spaces, soft hyphens, marks of direction, variation
selectors) are deleted, other widths and styles of a letter are the letter (NFKC), accents and strokes through letters
go, and letters of other scripts that look like a Latin one become it. So does every such letter of a text that really
is Cyrillic or Greek: texts that are equal stay equal, and few others become so.

Does NOT undo what a reader sees: letters apart ("s e v e n"), digits for letters ("s3ven"), other codes (Base64).
"""

import html
import re
import string
import unicodedata
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

MAX_ENCODED = 3
"""How many times a text may have been written as entities (`&amp;nbsp;` is twice)."""
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_TAG = re.compile(
    r"<!--.{0,1000}?-->"
    r"|</?(?:a|abbr|b|bdi|bdo|big|center|cite|code|del|em|font|i|ins|kbd|mark|q|small|span|strong|sub|sup|tt|u|wbr)"
    r"\b[^<>\n]{0,300}>",
    re.IGNORECASE | re.DOTALL,
)
_BLOCK_TAG = re.compile(r"</?(?:br|div|h[1-6]|hr|li|ol|p|pre|table|tbody|td|th|tr|ul)\b[^<>\n]{0,300}>", re.IGNORECASE)
_MARKS = re.compile("(?<=\\w)[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")
"""Accents, and strokes through a character. Marks of scripts that spell vowels with them are others."""
_LOOK_ALIKES: MappingProxyType[str, str] = MappingProxyType(
    {
        "a": "аɑαᴀꓮᎪ⍺ᗅ",
        "b": "вьƅβᏼᏏʙꓐᗷᑲ",
        "c": "сϲᴄᏟꓚⲥᑕ",
        "d": "ԁđɖᴅᎠꓓᗞᑯꓒᏧ",
        "e": "еҽєεᴇᎬꓰ℮ⴹɇ",
        "f": "ғƒϝꜰꓝꞙքᖴẝ",
        "g": "ɡցᶃǥɢᏀꓖᏳ",
        "h": "нһհħʜᎻꓧᏂᕼⲏ",
        "i": "іıɩιɪᎥꙇ",
        "j": "јϳᴊᎫꓙᒍ",
        "k": "кқκᴋᏦꓗⲕ",
        "l": "ӏłʟᏞꓡⳑⵏᒪǀ",
        "m": "мᴍᎷꓟⲙᗰ",
        "n": "пոռηɴꓠⲛ",
        "o": "оοօσᴏꓳⲟഠ०০๐ဝ〇",
        "p": "рρᴘᏢꓑⲣ",
        "q": "ԛզգ",
        "r": "гʀᎡᏒꓣⲅᴦꭈ",
        "s": "ѕꜱᏕՏᏚꓢƽ",
        "t": "тτᴛᎢꓔⲧŧ",
        "u": "սυμᴜꓴʋᑌ",
        "v": "ѵνᴠᏙꓦᐯⴸ",
        "w": "ѡԝաᴡᎳᏔꓪɯ",
        "x": "хχꓫⲭ᙭ᕽ",
        "y": "уүγʏყᎩᎽꓬⲩ",
        "z": "ᴢᏃꓜƶ",
    }
)
"""Latin letter -> letters that look like it once the case is folded, after Unicode's confusables (UTS 39)."""
_AS_LATIN = {ord(letter): latin for latin, letters in _LOOK_ALIKES.items() for letter in letters}
_AS_LATIN |= {
    start + n: chr(ord("a") + n) for start in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6) for n in range(26)
}  # letters in boxes, which NFKC leaves as they are
_CAPITALS = re.compile("(?<=[A-Za-z])[ΗΜΝΥ]|[ΗΜΝΥ](?=[A-Za-z])")
"""Greek capitals whose small letters look like other Latin letters; in a word with Latin letters only."""
_CAPITALS_AS_LATIN = {ord("Η"): "h", ord("Μ"): "m", ord("Ν"): "n", ord("Υ"): "y"}
_PLAIN = bytes(32 if chr(b) in "\t\n\v\f\r" else b + 32 if 65 <= b <= 90 else b for b in range(256))
"""Byte table: lower case; white space as blanks."""
_PUNCTUATION = string.punctuation.encode()
_OTHER_PUNCTUATION = re.compile(
    "[\u00a1-\u00bf\u055a-\u055f\u060c\u061b\u061f\u06d4\u0964\u0965\u2010-\u2027\u2030-\u205e\u2e00-\u2e7f"
    "\u3001-\u3003\u3008-\u301f\u3030\u30fb]"
)
_IDEOGRAPH = re.compile("([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff])")
_BLANKS = re.compile(r"\s+")


def undisguised(text: str) -> str:
    """The text in lower case without disguises; what is not ASCII is composed (NFKC)."""
    plain = _as_seen(text)
    return plain.lower() if plain.isascii() else plain


def _as_seen(text: str) -> str:
    """The text without disguises; where it is not ASCII, in lower case and composed."""
    for _ in range(MAX_ENCODED):
        if "&" not in text or (decoded := html.unescape(text)) == text:
            break
        text = decoded
    if "<" in text:
        text = _BLOCK_TAG.sub(" ", _TAG.sub("", text))
    if text.isascii():
        return text
    letters = _MARKS.sub("", unicodedata.normalize("NFKD", _INVISIBLE.sub("", text).replace("\u2800", " ")))
    letters = _CAPITALS.sub(lambda capital: capital[0].translate(_CAPITALS_AS_LATIN), letters)
    # Folding the case decomposes some letters again.
    return unicodedata.normalize("NFKC", letters.casefold().translate(_AS_LATIN))


def normalized_words(text: str) -> list[bytes]:
    """The words of a text, lower case, without disguises and punctuation."""
    return joined_words(text)[0].split()


def joined_words(text: str) -> tuple[bytes, NDArray[np.intp]]:
    """The words of a text with one blank between them, and the places of the blanks."""
    text = _as_seen(text)
    if not text.isascii():
        text = _BLANKS.sub(" ", _IDEOGRAPH.sub(r" \1 ", _OTHER_PUNCTUATION.sub("", text)))
    plain = text.encode(errors="replace").translate(_PLAIN, _PUNCTUATION).strip()
    blanks = _blanks(plain)
    # Deleting punctuation leaves runs of blanks. Found by their places: a search for two of them stops at every blank.
    if blanks.size > 1 and (blanks[1:] - blanks[:-1]).min() == 1:
        plain = b" ".join(plain.split())
        blanks = _blanks(plain)
    return plain, blanks


def _blanks(plain: bytes) -> NDArray[np.intp]:
    places: NDArray[np.intp] = (np.frombuffer(plain, np.uint8) == 32).nonzero()[0]
    return places
