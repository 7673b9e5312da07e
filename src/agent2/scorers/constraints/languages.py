"""Which language a text is in: by script, by letters that only one language has, and by its commonest words.

Deterministic, without trained data, and right for a sentence of five words, if those are everyday ones. The
published checker asks `langdetect`, which draws random numbers and guesses wildly on short texts. Where nothing
speaks for any language (digits, a formula, an unknown word or two) none is named, and the instruction counts as
followed, as it does there when nothing is detected. Does NOT know more than the languages of `LANGUAGES`, dialects,
or a second language within a text: the one with most words wins.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from agent2.scorers.constraints.finding import Arguments, Finding

MAX_CHARACTERS = 20_000
"""So much of a text is looked at."""
MIN_WORDS = 3
"""Fewer words that are all unknown say nothing."""
_LETTER = r"[^\W\d_]"
_MARK = r"[\u0300-\u036f\u0900-\u0dff\u0e31-\u0e4e]"  # vowel signs that are no letters of their own
_WORD = re.compile(rf"{_LETTER}(?:{_LETTER}|{_MARK}|['’](?={_LETTER}))*")
_KANA = re.compile(r"[\u3041-\u30ff]")

_SCRIPT_LANGUAGES: Mapping[str, str] = MappingProxyType(
    {
        "BENGALI": "bn", "GURMUKHI": "pa", "GUJARATI": "gu", "TAMIL": "ta", "TELUGU": "te", "KANNADA": "kn",
        "MALAYALAM": "ml", "THAI": "th", "HANGUL": "ko", "HEBREW": "he", "GREEK": "el", "HIRAGANA": "ja",
    }
)  # fmt: skip
"""Scripts that one language of ours writes; the Japanese mix kana with Chinese characters."""

_WORDS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "LATIN": {
            "en": """the of and to is in that it for you with on are this be as was have not at by from or an but they
                we
                he she his her their which will can has had would there been if when who what so no all my your me do
                i its our were more about out up them then than into could should did does how very one just write
                here let us these those some any am also only like get make good over after""",
            "de": """der die das und ist in nicht ein eine einen einem ich du er sie es wir ihr mit auf für von zu den
                dem
                des im am auch sich dass wie war sind hat haben wird aus bei nach nur noch aber oder wenn als so
                sein seine kann über um zum zur werden mein dein diese dieser""",
            "es": """el la los las de que y en un una es no se por con para su al lo como más pero sus le ya o este sí
                porque esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos durante
                son está fue ser tiene ella él yo mi tu del era han""",
            "pt": """o a os as de que e em um uma é não se por com para seu ao do da dos das no na nos nas como mais mas
                foi ele ela você são está também muito até há isso sua seus quando sem pelo pela já só eu meu minha
                ser tem nosso ou mesmo""",
            "fr": """le la les de des et est un une en que qui dans pour pas sur il elle nous vous je tu ce cette au aux
                du par avec ne se son sa ses plus mais ou où sont être avoir fait tout très aussi leur comme
                c'est d'un l'on été bien ont""",
            "it": """il lo la gli le di che e è un una in non per con del della dei delle si da al alla sono come più ma
                anche questo questa nel nella ha hanno io tu lui lei noi voi suo sua mi ti ci essere molto quando o
                i perché ogni dal sul""",
            "nl": """de het een en van in is dat op te zijn met voor niet aan er maar om ook als dan bij nog wel naar
                uit
                hij zij ik je wij door over heeft deze dit wordt worden kan mijn""",
            "pl": """i w z na do nie się jest to że jak o ale po za od tym co tak czy ten dla przez są był była być ich
                jego jej może tylko oraz już które który która ja ty my wy mnie pod""",
            "vi": """và của là không có được cho một người trong với các những này đã để từ khi đến tôi bạn như về thì
                cũng nhiều ra vào anh chị em rất sẽ nhưng hay đó""",
            "sw": """na ya wa kwa ni katika la za cha kuwa kama hii huo huu yake wake sana hiyo lakini au pia watu mimi
                wewe sisi yeye ana kila tu si vya hivyo ambayo bila juu zaidi yangu wako nina sijui hakuna leo
                kesho nini wapi lini ngapi saa pamoja""",
            "fi": """ja on ei se että hän oli olla ovat mutta kun niin myös kuin tai joka mitä en et emme ette eivät
                olen olet milloin missä miksi minä sinä me te he tämä vain jos voi ole sen sekä hänen nyt hyvin kaikki
                mikä siitä joita tässä meidän""",
            "sv": """och det att i en jag är som på de med för inte av den till om men ett har hade var han hon vi du
                från kan så eller när sin alla mycket också där""",
            "da": """og det at i en jeg er som på de med for ikke af den til om men et har havde var han hun vi du fra
                kan så eller når sin alle meget også der af""",
            "ro": """și de la în că nu un o pe cu este din pentru mai care se sunt ce dar sau fi a fost după prin foarte
                către ca între""",
            "tr": """ve bir bu da de için ile çok ne daha gibi var olarak kadar ben sen o biz siz onlar ama veya en her
                değil mi olan sonra""",
            "id": """yang dan di ini itu dengan untuk tidak dari dalam akan pada juga saya ke adalah karena ada mereka
                kami anda bisa oleh atau sudah""",
        },
        "CYRILLIC": {
            "ru": """и в не на я что он с как это по но они мы она из за то все так его у же от ты вы о был бы для
                было есть быть их мне меня который очень только или если когда чтобы""",
            "uk": """і в не на я що він з як це по але вони ми вона та за то все так його у від ти ви про був для
                було є бути їх мені який дуже тільки або якщо коли щоб й до""",
            "bg": """и в не на аз че той с как това по но те ние тя от за то се да си са е съм ще като ти вие бил
                било има или ако когато много само който която най при към във със""",
        },
        "DEVANAGARI": {
            "hi": """है हैं का की के में और को से यह वह पर एक नहीं था थी थे हो कि भी तो ने लिए कर रहा रही मैं हम आप वे
                इस उस जो क्या बहुत साथ होता करने अपने""",
            "mr": """आहे आहेत आणि चा ची चे मध्ये हा ही हे तो ती ते एक नाही होता होती होते पण की मी आम्ही तुम्ही
                त्या या साठी करून खूप असे आपल्या त्यांच्या""",
            "ne": """छ छन् र को का की मा यो त्यो एक होइन थियो हो पनि तर ले लाई म हामी तपाईं उनी यस धेरै गर्न
                भएको हुन्छ गर्ने आफ्नो हुन् छैन मलाई तिमी उसले भने आज कहिले""",
        },
        "ARABIC": {
            "ar": """في من على إلى أن هذا هذه التي الذي مع عن لا ما هو هي كان كانت ذلك كل بعد أو ثم بين قد لم حتى إذا
                أنا نحن""",
            "fa": """و در به از که این را با است برای آن یک می هم خود تا بر ما او شما من بود شد کرد های
                هر نیز اما اگر""",
            "ur": """اور میں کے کی ہے کا سے کو نے پر یہ کہ ہیں اس ہم وہ نہیں ایک بھی تھا تھی کر آپ لیے ان ہو گا بہت""",
        },
    }
)
"""Script -> language -> everyday words, for scripts that several languages write."""

_LETTERS: Mapping[str, str] = MappingProxyType(
    {
        "ru": "ыэё", "uk": "іїєґ", "fa": "پچژگ", "ur": "ٹڈڑےھںہ", "mr": "ळ", "de": "ßäöü", "es": "ñ¿¡", "pt": "ãõ",
        "fr": "œèê", "pl": "ąćęłńśźż", "vi": "ơưđạảấầẩậắằặẹẻếềểệịọỏốồổộớờởợụủứừửựỳỵỷ", "fi": "äö",
        "sv": "åäö", "da": "æøå",
        "ro": "ăîșț", "tr": "ğışöü", "it": "ìò", "bg": "ъ", "ar": "ةىأإ",
    }
)  # fmt: skip
"""Letters that speak for a language within its script; a word with one counts as half a known word."""

LANGUAGES = frozenset(
    {*_SCRIPT_LANGUAGES.values(), *(code for table in _WORDS.values() for code in table), "zh", "zh-cn", "zh-tw"}
)
_KNOWN: Mapping[str, Mapping[str, frozenset[str]]] = MappingProxyType(
    {script: {code: frozenset(words.split()) for code, words in table.items()} for script, table in _WORDS.items()}
)


def detect_language(text: str) -> str | None:
    """ISO 639-1 code of the language that most of a text is in, None if nothing speaks for one.

    Case does not matter. A tie goes to the first in the table; so does a text in a script other than Latin that has
    none of the known words. Three or more plain Latin words without any are taken for English: the other languages
    hardly ever manage without one, or without an accent.
    """
    words = [word.replace("’", "'") for word in _WORD.findall(text[:MAX_CHARACTERS].lower())]
    scripts = Counter[str]()
    for word in words:
        scripts[_script(word)] += len(word)
    if not scripts:
        return None
    script = scripts.most_common(1)[0][0]
    if script == "CJK":
        return "zh"
    return _SCRIPT_LANGUAGES.get(script) or _by_words(words, script)


def is_english(text: str) -> bool:
    """True unless the text is known to be in another language."""
    return detect_language(text) in (None, "en")


def response_language(text: str, arguments: Arguments) -> Finding:
    """The text is in `language`, or cannot be told from it: too few words, in a script that it is written in."""
    wanted = str(arguments["language"])
    found = detect_language(text)
    if found is None:
        has_letters = _WORD.search(text[:MAX_CHARACTERS]) is not None
        followed = not has_letters or wanted in _KNOWN["LATIN"]
    else:
        followed = found == wanted or (found == "zh" and wanted.startswith("zh"))
    return Finding(followed, f"language {found or 'cannot be told'}, {wanted} asked for")


def _by_words(words: list[str], script: str) -> str | None:
    points = {
        code: sum(word in known for word in words) + 0.5 * _with_letters(words, code)
        for code, known in _KNOWN.get(script, {}).items()
    }
    best = max(points, key=lambda code: points[code], default=None)
    if best is None or points[best] > 0 or script != "LATIN":
        return best
    return "en" if len(words) >= MIN_WORDS and all(map(str.isascii, words)) else None


def _with_letters(words: list[str], code: str) -> int:
    letters = frozenset(_LETTERS.get(code, ""))
    return sum(not letters.isdisjoint(word) for word in words) if letters else 0


def _script(word: str) -> str:
    """The script of a word's first letter, by its Unicode name; a word with kana is Japanese."""
    if _KANA.search(word):
        return "HIRAGANA"
    return unicodedata.name(word[0], "UNKNOWN").split()[0]
