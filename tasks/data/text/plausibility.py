"""Scores how plausible bytes are as text in an encoding: real words, or mojibake.

Successful decoding says little: nearly any bytes are text in GB18030 or in a Western code page. So every word with a
letter beyond ASCII is scored by its scripts, its case, how common its Chinese or Korean characters are, and whether one
language has all the letters. No score is certain; callers compare several readings.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

#: Encodings that are tried if none is declared or set, the most common first, with their prior weight: old and rare
#: encodings count less.
CANDIDATES = {
    "gb18030": 1.0, "cp1252": 1.0, "cp1250": 0.95, "cp1251": 0.95, "cp932": 0.95, "cp949": 0.95, "cp1254": 0.85,
    "big5": 0.7, "cp1253": 0.8, "mac_roman": 0.65, "euc_jp": 0.85, "koi8_r": 0.6, "cp850": 0.6, "cp866": 0.5,
    "iso8859_2": 0.65, "iso8859_15": 0.6,
}  # fmt: skip
_MAX_PIECES = 2000
_MAX_WORD = 60
_EXPECTED = 0.5  # bonus if all words are expected
# Each run is scanned once: a pattern that restarts at every letter takes hours for one long word.
_STRETCH = re.compile(rb"[0-9@-\xff]+")
_WORD = re.compile(r"(?:(?<![A-Za-z'’])[A-Za-z'’]*)?[^\x00-\x7f][^\x00-\x40\x5b-\x60\x7b-\x7f]*")
# Symbols at the edge of words and numbers in any language.
_NEUTRAL_SYMBOLS = frozenset("°µ±²³×€§©®–—…“”„’Øø")
_SYMBOLS = _NEUTRAL_SYMBOLS | frozenset("°µ±²³×÷€£§©®™«»„“”‘’‚‹›–—…·•¡¿№ºª½¼¾、。，；：！？（）《》【】「」・～　")
_OPENING, _CLOSING = frozenset("„“‘«‹”»¿¡（《【「№"), frozenset("“”’»›®™²³°º…）》】」")
# Letters beyond ASCII of the languages that a code page covers; after the bar, rare ones.
_ALPHABETS = {
    "cp1252": (
        "äöüß", "éèêàçâîôû|ùëïœüæÿ", "áéíóúñü", "ãáâçéêíóôõú|àü", "àèéìòù|îíóú", "éëïöü|èêáóí", "æøåé|äöüóòê",
        "åäöé|àüš", "áéíóúýþðæö", "àèéíòóúüç|ï", "äöõüšž",
    ),
    "cp1250": (
        "ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíľňóôšťúýž|ĺŕ", "áéíóöőúüű", "čćđšž", "ăâîşţ", "äöüß", "ëç",
    ),
    "cp1254": ("çğıöşü|âîû",), "iso8859_2": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíľňóôšťúýž|ĺŕ", "áéíóöőúüű"),
}  # fmt: skip
# Common characters of labels and everyday text; others are as plausible in another encoding.
_USUAL_HAN = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方多"
    "经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性"
    "知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次"
    "度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安少报才结反受目太量再感建"
    "务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路"
    "记南品住告类求据程北边死张该交规万取拉格望术领共确传师观清今切院让识带导争运绝缘断器裂纹缝锈蚀破损脏污油渗漏鸟巢划痕凹陷毛"
    "刺焊缺失异模糊盘壳烧箱未戴帽烟服盖板压示灯亮灭红绿黄蓝旋钮按状态氧磨松掉落杂质泡孔洞坑疤斑腐剥皮涂层漆螺栓母丝线缆管瓷瓶套"
    "塔杆具避雷针刀闸互容抗呼吸硅胶筒封火焰雾车猫狗花草树叶枯病虫害霉熟健康良恶瘤肺炎骨折左右衣鞋裤裙包镜标签印偏移倾斜弯曲擦伤"
    "碰裸露积灰尘冰雪湿潮短缺陷钢铁铝铜木布纸玻璃塑料轴承齿轮电池芯片路屏幕边框角挂悬浮投退合分空旗牌钥匙柜渍堵塞爆锐"
)
_USUAL_HANGUL = frozenset(
    "이다는을의에가고하은기지로사를한어나인자리시도정대해수일과들아그전보부제스서동상있원성주구장여적화경용면으생연무조소신비유선"
    "안차공계재미마세트드오관모라만민반거방문위분개발바실현행산물강국중간심내체불량결함균열식파손염녹처크래치긁힘찍질누절단변형탈"
    "락랙홀버포색족외양품금속표흠집표면접착볼너트볼트철판통과합격부적교환점검고장배선애자새둥타입명카메번호흑백빨간파란"
)
_ALPHABETS |= dict.fromkeys(("mac_roman", "cp850", "iso8859_15"), _ALPHABETS["cp1252"])
_VOWELS = frozenset("aeiouyàáâãäåæèéêëìíîïòóôõöøùúûüýÿœąęěůőűăıāēīū")
_OTHER_VOWELS = frozenset("аеёиоуыэюяіїєαεηιουωάέήίόύώϊϋ")
_COMMON_CYRILLIC = frozenset("оеаинтсрвлкмдпуяыьзбгчйі")
_COMMON_GREEK = frozenset("αοιετσνηυρπκμλςόίάέή")
_VOICED = frozenset("ｳｶｷｸｹｺｻｼｽｾｿﾀﾁﾂﾃﾄﾊﾋﾌﾍﾎ")  # half-width kana that a voicing mark may follow
# Parts of Korean syllables that most words are made of: first consonants, vowels, last consonants.
_INITIALS = frozenset("ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ")
_MEDIALS, _FINALS = frozenset({0, 1, 4, 5, 6, 8, 9, 11, 13, 14, 18, 20}), frozenset({0, 1, 4, 8, 16, 17, 19, 21})


@dataclass(frozen=True)
class Reading:
    """Pieces of bytes read in one encoding.

    Attributes:
        encoding: Its name.
        texts: The pieces as text.
        score: Plausibility: near 1 for real words, 0 for implausible ones.
    """

    encoding: str
    texts: tuple[str, ...]
    score: float


def pieces(data: bytes) -> tuple[bytes, ...]:
    """Return the different runs that hold a byte beyond ASCII, in order.

    They are divided at symbols and control characters below ``@``, which are never part of a multi-byte character in
    the tried encodings; pure ASCII text is ignored.
    """
    return tuple(dict.fromkeys(piece for piece in _STRETCH.findall(data) if not piece.isascii()))


def readings(
    some: Sequence[bytes], encodings: Mapping[str, float], known: Collection[str] = (), part: bool = False
) -> list[Reading]:
    """Read the pieces in each encoding that can decode them, most plausible first; equal readings once.

    Args:
        some: The result of ``pieces``.
        encodings: Python's name of an encoding -> its prior weight.
        known: Expected words, such as those of files whose encoding is certain.
        part: Whether an encoding that decodes only half of the pieces counts too.
    """
    found: dict[tuple[str, ...], Reading] = {}
    data = b"\n".join(some[:_MAX_PIECES])
    for encoding, belief in encodings.items():
        try:
            texts = tuple(data.decode(encoding, "replace" if part else "strict").split("\n"))
        except (UnicodeError, LookupError):
            continue
        if part and 2 * sum("\ufffd" in text for text in texts) > len(texts):
            continue
        words = dict.fromkeys(word for text in texts for word in _WORD.findall(text))
        this = Reading(encoding, texts, belief * score(words, encoding, known))
        if texts not in found or this.score > found[texts].score:
            found[texts] = this
    return sorted(found.values(), key=lambda each: -each.score)


def score(words: Iterable[str], encoding: str, known: Iterable[str] = ()) -> float:
    """Return the mean plausibility of words, 0 to 1, more if they are expected; 1 without any word."""
    words = [unicodedata.normalize("NFC", word[:_MAX_WORD]) for word in words]
    if not words:
        return 1.0
    expected = set(known)
    marks = [1.0 if word in expected else _word(word, encoding) for word in words]
    mean = sum(marks) / len(marks)
    likely = mean * _one_language(words, encoding) if encoding in _ALPHABETS else mean
    return likely + _EXPECTED * sum(word in expected for word in words) / len(words)


def non_ascii_words(text: str) -> list[str]:
    """Return the words of a text that hold a letter beyond ASCII."""
    return _WORD.findall(text)


def scripts(word: str) -> set[str]:
    """Return the scripts of a word's letters."""
    return {_script(letter) for letter in word if letter.isalpha()}


def _word(word: str, encoding: str) -> float:
    if any(unicodedata.category(letter) in ("Cc", "Cn", "Co", "Cs") or letter == "\ufffd" for letter in word):
        return 0.0
    core = word.strip("".join(_SYMBOLS) + "'")
    before, _, after = word.partition(core) if core else (word, "", "")
    if not core:
        plain = len(set(word)) == 1 and word[0] in _NEUTRAL_SYMBOLS | {"'"}  # as in 5 µm
        return 0.5 if not plain else 0.4 if word[0] in "²³" else 1.0
    if set(before) - _OPENING - _NEUTRAL_SYMBOLS - {"'"} or set(before) & set("³²®™") or set(after) - _CLOSING - {"'"}:
        return 0.2
    if core.replace("’", "").isascii():  # it’s
        return 0.6 if "…" in before else 1.0
    if len(core) == 1 and scripts(core) <= {"latin", "cyrillic", "greek"}:
        return 0.4  # a single letter
    if any(not (c.isalpha() or c in "'’·・ー" or unicodedata.category(c) in ("Mn", "Mc", "Nd")) for c in core):
        return 0.05  # a symbol among letters
    found = scripts(core)
    foreign = found - {"ascii"}
    if foreign & {"han", "kana", "hangul", "half"}:
        return _east_asian(core, foreign, "ascii" in found, encoding)
    if len(foreign) > 1 or ("ascii" in found and foreign != {"latin"}):
        return 0.0 if foreign & {"latin"} or "ascii" in found else 0.2
    return _cased(core, foreign)


def _cased(word: str, found: set[str]) -> float:
    broken = any(
        (a.islower() and b.isupper() and not (a.isascii() and b.isascii()))
        or (a.isupper() and b.islower() and number and not (a.isascii() and b.isascii()))
        for number, (a, b) in enumerate(pairwise(word))
    )
    if broken:
        return 0.05
    lower = word.lower()
    if found == {"latin"}:
        special = sum(not letter.isascii() for letter in word)
        crowded = special > 1 and special > 0.6 * len(word)
        return 0.3 if crowded else 1.0
    common = _COMMON_CYRILLIC if found == {"cyrillic"} else _COMMON_GREEK if found == {"greek"} else None
    if common is None:
        return 0.6
    if "ς" in lower[:-1]:
        return 0.0
    if len(word) > 1 and not set(lower) & _OTHER_VOWELS:
        return 0.2
    share = sum(letter in common for letter in lower) / len(lower)
    capitals = 0.8 if len(word) > 1 and word.isupper() else 1.0
    return capitals * min(1.0, max(0.1, (share - 0.4) * 2.5))


def _east_asian(word: str, found: set[str], with_ascii: bool, encoding: str) -> float:
    if found - {"han", "kana", "hangul", "half"}:
        return 0.0
    if "half" in found:
        voiced = [base for base, mark in pairwise(word) if mark in "ﾞﾟ"]
        wrong = word[0] in "ﾞﾟｰｧｨｩｪｫｬｭｮｯ" or not _VOICED.issuperset(voiced) or found != {"half"} or with_ascii
        return 0.0 if wrong else 0.9 if voiced else 0.3
    if "hangul" in found and len(found) > 1:
        return 0.1  # Korean labels hold no Chinese characters
    letters = [letter for letter in word if not letter.isascii() and letter.isalpha()]
    mean = sum(_character(letter, encoding) for letter in letters) / len(letters)
    # A lower-case ASCII letter next to a character, as inside a Western word, is rare.
    mixed = re.search(r"[a-z][^\x00-\x7f]|[^\x00-\x7f][a-z]", word) is not None
    if encoding == "euc_jp" and "kana" not in found:
        mean *= 0.5
    return mean * (0.6 if mixed else 1.0)


@lru_cache(8192)
def _character(letter: str, encoding: str) -> float:
    kind = _script(letter)
    if kind == "hangul":
        return _syllable(letter)
    if kind == "kana":
        return 1.0 if encoding in ("cp932", "euc_jp", "utf-8") or encoding.startswith("utf") else 0.2
    simplified, traditional = _lead(letter, "gb2312"), _lead(letter, "big5")
    japanese = _lead(letter, "euc_jp")
    if encoding == "gb18030":
        if simplified:
            return 1.0 if letter in _USUAL_HAN else 0.65 if simplified <= 0xD7 else 0.35
        return 0.3 if 0xA4 <= traditional <= 0xC5 else 0.0
    if encoding == "big5":
        return (1.0 if letter in _USUAL_HAN else 0.75) if 0xA4 <= traditional <= 0xC5 else 0.3
    if encoding in ("cp932", "euc_jp"):
        return 1.0 if 0xB0 <= japanese <= 0xCF else 0.3
    if encoding == "cp949":
        return 0.1
    usual = 0xB0 <= simplified <= 0xF7 or 0xA4 <= traditional <= 0xF9 or 0xB0 <= japanese <= 0xF4
    return 1.0 if usual else 0.4


def _lead(letter: str, encoding: str) -> int:
    """Return the first byte of a character that the encoding has as two bytes, else 0; common ones come first."""
    try:
        data = letter.encode(encoding)
    except UnicodeError:
        return 0
    return data[0] if len(data) == 2 else 0


def _syllable(letter: str) -> float:
    number = ord(letter) - 0xAC00
    if not 0 <= number < 11172:
        return 0.1
    if letter in _USUAL_HANGUL:
        return 1.0
    initial, medial, final = number // 588, number % 588 // 28, number % 28
    good = ("ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"[initial] in _INITIALS) + (medial in _MEDIALS) + (final in _FINALS)
    return (0.0, 0.1, 0.3, 0.6)[good]


def _one_language(words: Iterable[str], encoding: str) -> float:
    """Return the largest share of special letters in one language of the code page, times how well they fit."""
    letters: list[str] = []
    fits = 0
    for word in words:
        lower = f" {word.lower()} "
        for before, letter, after in zip(lower, lower[1:], lower[2:], strict=False):
            if not letter.isascii() and letter.isalpha():
                letters.append(letter)
                fits += _fits(before, letter, after)
    if not letters:
        return 1.0
    best = 0.0
    for alphabet in _ALPHABETS[encoding]:
        core, _, rare = alphabet.partition("|")
        best = max(best, sum(1.0 if c in core else 0.7 if c in rare else 0.0 for c in letters) / len(letters))
    return best**2 * (fits / len(letters))


def _fits(before: str, letter: str, after: str) -> bool:
    """Check whether a special letter fits: a vowel not between two vowels, a consonant not between two."""
    if letter in "ńśź" and after in _VOWELS:
        return False  # Polish writes ni, si, zi
    neighbours = {before in _VOWELS, after in _VOWELS} if before.isalpha() and after.isalpha() else {True, False}
    return (letter not in _VOWELS) in neighbours


@lru_cache(8192)
def _script(letter: str) -> str:
    if letter.isascii():
        return "ascii"
    code = ord(letter)
    if 0xFF61 <= code <= 0xFF9F:
        return "half"
    if 0x3040 <= code <= 0x30FF:
        return "kana"
    name = unicodedata.name(letter, "")
    for start, script in _STARTS.items():
        if name.startswith(start):
            return script
    return name.split(" ")[0].lower() or "none"


_STARTS = {"CJK": "han", "HANGUL": "hangul", "LATIN": "latin", "CYRILLIC": "cyrillic", "GREEK": "greek"}
_STARTS |= {"FEMININE": "latin", "MASCULINE": "latin", "MICRO": "latin", "FULLWIDTH LATIN": "latin"}
