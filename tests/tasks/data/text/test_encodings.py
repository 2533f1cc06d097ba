"""Text is decoded in the most plausible encoding; if two are plausible, the user is asked."""

import time

import pytest

from models.errors import UserError
from tasks.data.ingest.label_files import read_aliases, read_classes
from tasks.data.source.rules import NameRule, compile_rule
from tasks.data.text.annotation_encoding import shared_encodings
from tasks.data.text.read_text import Encodings, TextError, decode_text
from tests.support.format_rows import reasons, rows_of
from tests.support.voc_trees import encoded, make_image, put, voc_xml

GERMAN = ("Ölspur", "Türgriff", "Schäden")
CLEAR = [
    ("cp1252", "Ölspur, Türgriff, Schäden"),
    ("cp1252", "Größe"),
    ("cp1252", "pièce, fêlure, brûlé"),
    ("cp1252", "daño, grúa"),
    ("cp1252", "avaliação, não"),
    ("cp1252", "måler, øje"),
    ("cp1252", "20°C bis 5 µm"),
    ("cp1250", "trhlina, koroze, poškozený, příšera"),
    ("cp1250", "repedés, törött, hibás, csőtörés"),
    ("cp1251", "трещина, ржавчина"),
    ("gb18030", "绝缘子, 断路器"),
    ("gb18030", "裂纹;锈"),
    ("gb18030", "鸟巢"),
    ("gb18030", "A相, LED灯"),
    ("cp932", "ひび割れ, 錆"),
    ("cp932", "傷"),
    ("cp949", "균열, 부식, 파손"),
    ("big5", "破損, 正常, 絕緣子, 斷裂"),
    ("utf-16-le", "image,labels\na.png,绝缘子\n"),
    ("utf-16-be", "Ölspur, Türgriff"),
    ("utf-32", "Ölspur, 绝缘子"),
]


@pytest.mark.parametrize(("encoding", "text"), CLEAR)
def test_text_is_decoded_to_real_words(encoding, text):
    found, repaired = decode_text(text.encode(encoding), "labels.csv")
    assert found == text
    assert repaired or encoding == "utf-32"  # with its mark


@pytest.mark.parametrize(
    "text", ["Modèle", "é", "café", "ģipsis, šķembas", "плохо", "绝缘子", "re\u0301seau", "5 µm", "Ølfilter"]
)
def test_utf8_stays_utf8(text):
    assert decode_text(text.encode(), "x.txt") == (text, "")
    assert decode_text(text.encode("utf-8-sig"), "x.txt") == (text, "")


@pytest.mark.parametrize(
    ("encoding", "text", "one", "other"),
    [
        ("cp1250", "kolečko", "cp1252: koleèko", "cp1250: kolečko"),
        ("cp1254", "kırık", "cp1252: kýrýk", "cp1254: kırık"),
        ("koi8_r", "ok\nтрещина", "cp1251: ФТЕЭЙОБ", "koi8_r: трещина"),
    ],
)
def test_two_plausible_readings_need_the_setting(encoding, text, one, other):
    with pytest.raises(UserError) as caught:
        decode_text(text.encode(encoding), "in/labels.csv")
    shown = str(caught.value)
    assert "in/labels.csv" in shown
    assert one in shown
    assert other in shown
    assert {one.split(":")[0], encoding} <= set(shown.split("ingest.encoding=")[1].split()[0].split("|"))
    assert decode_text(text.encode(encoding), "x", Encodings(configured=encoding))[0] == text


def test_binary_data_are_not_text():
    for data in (b"\xff\x00\x81\xff", b"a,b\n\x81\x8d\x8f\x90\x9d\xff\xfe\xf5"):
        with pytest.raises(TextError):
            decode_text(data, "x")


def xml_tree(root, labels, encode):
    for number, label in enumerate(labels):
        put(root / f"{number}.png", encoded(make_image(number)))
        put(root / f"{number}.xml", encode(label))
    return root


def undeclared(encoding):
    return lambda label: voc_xml([label]).decode().encode(encoding)


def test_western_xml_without_a_declaration(tmp_path):
    rows = rows_of("voc", xml_tree(tmp_path, GERMAN, undeclared("cp1252")))
    assert [rows[f"{n}.png"].labels for n in range(3)] == [[name] for name in GERMAN]
    assert (rows["0.xml"].reason, rows["0.xml"].detail) == ("encoding", "cp1252")
    assert reasons(rows)["0.xml"] == ("fixed", "encoding")


@pytest.mark.parametrize("declared", ["utf-8", "GBK", "iso-8859-1", "windows-1252"])
@pytest.mark.parametrize(("label", "encoding"), [("Türgriff", "cp1252"), ("绝缘子", "gbk"), ("Türgriff", "utf-8")])
def test_an_implausible_declaration_is_ignored(tmp_path, declared, label, encoding):
    head = f'<?xml version="1.0" encoding="{declared}"?>'.encode()
    xml_tree(tmp_path, [label], lambda label: head + undeclared(encoding)(label))
    assert rows_of("voc", tmp_path)["0.png"].labels == [label]


def test_all_xml_files_of_a_source_get_one_encoding(tmp_path):
    # Each by itself is unclear (č or è, ů or ù); together they are Czech.
    labels = ["kolečko", "kůra", "řez", "trhlina"]
    rows = rows_of("voc", xml_tree(tmp_path / "a", labels, undeclared("cp1250")))
    assert [rows[f"{n}.png"].labels for n in range(4)] == [[name] for name in labels]
    # A sibling in UTF-8 says what the unclear one means.
    xml_tree(tmp_path / "b", ["kolečko"], undeclared("cp1250"))
    put(tmp_path / "b/x.png", encoded(make_image(9)))
    put(tmp_path / "b/x.xml", voc_xml(["kolečko"]))
    assert rows_of("voc", tmp_path / "b")["0.png"].labels == ["kolečko"]


def test_unclear_xml_files_are_refused_once_and_the_setting_decides(tmp_path):
    xml_tree(tmp_path, ["kolečko", "trhlina"], undeclared("cp1250"))
    with pytest.raises(UserError, match=r"0.xml(.|\n)*cp1250: kolečko(.|\n)*ingest.encoding="):
        rows_of("voc", tmp_path)
    from tasks.data.ingest.settings import IngestSettings

    assert IngestSettings(encoding="GBK").encoding == "gb18030"
    with pytest.raises(ValueError, match="no such encoding"):
        IngestSettings(encoding="klingon")
    with pytest.raises(ValueError, match="no such encoding"):
        IngestSettings(encoding="base64")
    assert shared_encodings(tmp_path.glob("*.xml"), "cp1250").configured == "cp1250"


def test_files_in_two_encodings_are_refused_by_name(tmp_path):
    xml_tree(tmp_path, ["Türgriff", "Größe"], undeclared("cp1252"))
    for number, label in enumerate(["绝缘子破损", "断路器"]):
        put(tmp_path / f"c{number}.png", encoded(make_image(5 + number)))
        put(tmp_path / f"c{number}.xml", undeclared("gbk")(label))
    with pytest.raises(UserError, match=r"several encodings(.|\n)*in cp1252(.|\n)*in gb18030"):
        rows_of("voc", tmp_path)


def test_tables_lists_names_and_sites_use_the_same_decoding(tmp_path):
    for number in range(3):
        put(tmp_path / f"t/{number}.png", encoded(make_image(number)))
    lines = "".join(f"{number}.png\t{name}\n" for number, name in enumerate(GERMAN))
    put(tmp_path / "t/labels.tsv", f"image\tlabel\n{lines}".encode("cp1252"))
    rows = rows_of("table", tmp_path / "t")
    assert [rows[f"{n}.png"].labels for n in range(3)] == [[name] for name in GERMAN]
    assert (rows["labels.tsv"].reason, rows["labels.tsv"].detail) == ("encoding", "cp1252")

    put(tmp_path / "classes.txt", "\n".join(GERMAN).encode("cp1252"))
    assert read_classes(tmp_path / "classes.txt", "--classes") == list(GERMAN)
    put(tmp_path / "aliases.csv", "found,meant\nTurgriff,Türgriff\n".encode("cp1252"))
    assert read_aliases(tmp_path / "aliases.csv", "--aliases") == {"Turgriff": "Türgriff"}
    put(tmp_path / "sites.csv", "path,name\na.png,Köln\n".encode("cp1252"))
    rule = NameRule(rule="table", table=tmp_path / "sites.csv")
    assert compile_rule(rule, "ingest.site")("a.png", {}) == "Köln"
    put(tmp_path / "sites.csv", "path,name\na.png,Třebíč\nb.png,č\n".encode("cp1250"))
    with_encoding = rule.model_copy(update={"encoding": "cp1250"})
    assert compile_rule(with_encoding, "ingest.site")("a.png", {}) == "Třebíč"

    put(tmp_path / "y/images/a.png", encoded(make_image(7)))
    put(tmp_path / "y/labels/a.txt", b"1 0.5 0.5 0.2 0.2\n")
    put(tmp_path / "y/data.yaml", "names: [Ölspur, Türgriff]\n".encode("cp1252"))
    rows = rows_of("yolo", tmp_path / "y")
    assert rows["images/a.png"].labels == ["Türgriff"]
    assert reasons(rows)["data.yaml"] == ("fixed", "encoding")


def test_one_long_word_is_scored_quickly(tmp_path):
    begun = time.monotonic()
    text, _ = decode_text(f"{'a' * 400_000}\nÖlspur é'{'b' * 400_000}\n".encode("cp1252"), ask=False)
    assert "Ölspur" in text
    assert time.monotonic() - begun < 20  # hours, when every letter begins anew
