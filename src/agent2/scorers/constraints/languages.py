"""The language of a text, as far as it has one that can be told.

By `langdetect`, the detector of the published IFEval checker, with a fixed seed: the checker draws random numbers, so
that its own verdict on a short text changes. Case does not matter here; there, capitals are another language.

Of a short text the detector is wild: `YES` is Turkish, "black, big, old" Danish, a list of English first names Catalan.
So no letters, one or two words and a list of names speak for no language, and up to 30 words are in the language that
was asked for if the detector finds it likely, or if they have more everyday words of it than of any other.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

MAX_CHARACTERS = 20_000
"""Longer texts are cut before their language is detected."""
MIN_WORDS = 3
"""Fewer words of Latin letters indicate no language."""
MAX_SHORT = 30
"""Words of a short text, whose language may be a less likely one."""
MIN_PROBABILITY, MIN_OF_ENGLISH = 0.25, 0.1
"""Of the language that is asked for, in a short text. The detector takes "die Katze ist rot" for Afrikaans, and poems
and names for anything but English."""
MIN_PLAIN, PLAIN_SHARE, MIN_EVERYDAY = 12, 0.25, 4
"""Words of a text, share of a language's everyday words in it, and how many different ones, from which on its language
needs no detector."""
MAX_NAME = 3
"""Words of a name in a list."""
_LANGUAGE_LIST = """
    af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt ro ru
    sk sl so sq sv sw ta te th tl tr uk ur vi zh zh-cn zh-tw
"""
_NOT_LATIN_LIST = "ar bg bn el fa gu he hi ja kn ko mk ml mr ne pa ru ta te th uk ur zh zh-cn zh-tw"
LANGUAGES, _NOT_LATIN = frozenset(_LANGUAGE_LIST.split()), frozenset(_NOT_LATIN_LIST.split())
_EVERYDAY_WORDS: Mapping[str, Mapping[str, str]] = MappingProxyType(
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
"""Script -> language -> everyday words, a second opinion on short texts in scripts of several languages."""
_WORD_SETS: Mapping[str, Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        script: {code: frozenset(text.split()) for code, text in table.items()}
        for script, table in _EVERYDAY_WORDS.items()
    }
)
_LETTER = r"[^\W\d_]"
_MARK = r"[\u0300-\u036f\u0900-\u0dff\u0e31-\u0e4e]"  # vowel signs that are no letters of their own
_WORD = re.compile(rf"{_LETTER}(?:{_LETTER}|{_MARK}|['’](?={_LETTER}))*")
_KANA = re.compile(r"[\u3041-\u30ff]")
_ITEM_END = re.compile(r"[\n,;•|]|(?<=\d)\.\s|\band\b|&")
_VIETNAMESE = re.compile("[ơưđạảấầẩậắằặẹẻếềểệịọỏốồổộớờởợụủứừửựỳỵỷ]")


def language_probabilities(text: str) -> Mapping[str, float]:
    """ISO 639-1 code -> probability, the likeliest first; empty: the text speaks for no language.

    Chinese is `zh`, whichever script. The same text always has the same probabilities.
    """
    tokens = _WORD.findall(text[:MAX_CHARACTERS])
    is_latin = not tokens or _script(tokens) == "LATIN"
    if not tokens or (is_latin and len(tokens) < MIN_WORDS and not any(map(_VIETNAMESE.search, tokens))):
        return {}
    if _script(tokens) == "CJK":
        return {"zh": 1.0}  # Japanese has kana among its Chinese characters; the detector guesses without
    detected: dict[str, float] = {}
    for candidate in _detected(" ".join(tokens).lower()):
        code = "zh" if candidate.lang.startswith("zh") else candidate.lang
        detected[code] = detected.get(code, 0.0) + candidate.prob
    likeliest = next(iter(detected), None)
    if is_latin and likeliest not in ("en", None) and _is_list_of_names(text):
        return {}
    return detected


def plain_language(text: str) -> str | None:
    """The language of a longer text of Latin letters that a quarter of its words say without doubt; None: ask.

    They are everyday words of it, at least four different ones, and three times as many as of English. Takes a
    hundredth of the detector's time.
    """
    tokens = [word.lower() for word in _WORD.findall(text[:MAX_CHARACTERS])]
    if len(tokens) < MIN_PLAIN or sum(map(str.isascii, tokens)) < len(tokens) / 2:
        return None
    counts = {code: sum(map(everyday.__contains__, tokens)) for code, everyday in _WORD_SETS["LATIN"].items()}
    likeliest = max(counts, key=counts.__getitem__)
    is_plain = counts[likeliest] >= max(PLAIN_SHARE * len(tokens), 3 * counts["en"])
    has_several = len(_WORD_SETS["LATIN"][likeliest].intersection(tokens)) >= MIN_EVERYDAY
    return likeliest if is_plain and has_several else None


def detect_language(text: str) -> str | None:
    """ISO 639-1 code of the language that a text is in; None if it speaks for none."""
    return next(iter(language_probabilities(text)), None)


def is_in(text: str, requested: str) -> bool:
    """Whether a text is in a language; a text that speaks for none is in each that has its letters."""
    requested = "zh" if requested.startswith("zh") else requested
    tokens = _WORD.findall(text[:MAX_CHARACTERS])
    probabilities = language_probabilities(text)
    if not probabilities:
        return not tokens or (requested not in _NOT_LATIN and _script(tokens) == "LATIN")
    if len(tokens) <= MAX_SHORT:
        threshold = MIN_OF_ENGLISH if requested == "en" else MIN_PROBABILITY
        return probabilities.get(requested, 0.0) >= threshold or _by_everyday_words(tokens) == requested
    return next(iter(probabilities)) == requested


def _by_everyday_words(tokens: list[str]) -> str | None:
    """The language with most everyday words in a text; of ASCII words without any, English; None: of several."""
    counts = {
        code: sum(word.lower().replace("’", "'") in everyday for word in tokens)
        for code, everyday in _WORD_SETS.get(_script(tokens), {}).items()
    }
    highest = max(counts.values(), default=0)
    likeliest = [code for code, count in counts.items() if count == highest]
    if highest == 0:
        return "en" if _script(tokens) == "LATIN" and all(map(str.isascii, tokens)) else None
    return likeliest[0] if len(likeliest) == 1 else None


def _is_list_of_names(text: str) -> bool:
    """Whether a text of ASCII letters is a list whose items are short and begin with capitals."""
    items = [tokens for tokens in map(_WORD.findall, _ITEM_END.split(text[:MAX_CHARACTERS])) if tokens]
    names = [tokens for tokens in items if len(tokens) <= MAX_NAME and all(word[0].isupper() for word in tokens)]
    letters = "".join(map("".join, items))
    return len(items) >= 3 and len(names) >= 0.8 * len(items) and letters.isascii()


def _script(tokens: list[str]) -> str:
    """The script of most letters, by the Unicode name of each word's first; a word with kana is Japanese."""
    scripts = Counter[str]()
    for word in tokens:
        script = "HIRAGANA" if _KANA.search(word) else unicodedata.name(word[0], "UNKNOWN").split()[0]
        scripts[script] += len(word)
    return scripts.most_common(1)[0][0]


@cache
def _detectors() -> Any:
    from langdetect import detector_factory  # here: its profiles take 0.3 s to load

    detector_factory.init_factory()
    return detector_factory._factory


def _detected(text: str) -> list[Any]:
    from langdetect import LangDetectException

    detector = _detectors().create()
    detector.seed = 0
    detector.append(text)
    try:
        return list(detector.get_probabilities())
    except LangDetectException:
        return []  # nothing that it knows: emoji, letters of a script without a profile
