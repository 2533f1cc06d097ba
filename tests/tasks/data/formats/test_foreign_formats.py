"""Annotations of other tools: validity flags are respected, unsupported formats are refused by name with advice."""

import json

import pytest

from models.errors import UserError
from tasks.data.formats.shared.annotation import AnnotationError
from tasks.data.formats.voc.xml_file import parse_annotation
from tasks.data.formats.yolo.reader import parse_labels
from tasks.data.ingest.audit import guess_format
from tests.support.format_rows import rows_of
from tests.support.voc_trees import encoded, make_image, put, voc_xml


def xml(*objects, head="<filename>a.png</filename>", root="annotation"):
    return f"<{root}>{head}{''.join(objects)}</{root}>".encode()


def item(label, **marks):
    return f"<object><name>{label}</name>{''.join(f'<{k}>{v}</{k}>' for k, v in marks.items())}</object>"


def labels(*objects, **options):
    return parse_annotation(xml(*objects), **options).labels


def refused(data, says):
    with pytest.raises(AnnotationError, match=says) as caught:
        parse_annotation(data)
    assert caught.value.reason == "bad_xml"


def test_objects_marked_deleted_do_not_count(tmp_path):
    polygon = "<pt><x>1</x><y>1</y></pt>"
    erased = item("oil", deleted=1, verified=0, occluded="no", polygon=polygon)
    assert labels(item("crack", deleted=0, verified=0), erased) == ("crack",)
    assert labels(erased) == ()  # somebody looked and took it out: a negative
    put(tmp_path / "a.png", encoded(make_image(0)))
    put(tmp_path / "a.xml", xml(item("crack"), erased))
    rows = rows_of("voc", tmp_path)
    assert rows["a.png"].labels == ["crack"]
    assert (rows["a.xml"].status, rows["a.xml"].reason) == ("fixed", "erased")
    assert "1 object(s) marked deleted" in rows["a.xml"].detail


def test_truncated_occluded_and_difficult_objects_count():
    assert labels(item("crack", truncated=1, occluded=1, verified=0), item("oil", difficult=1)) == ("crack", "oil")
    assert labels(item("oil", difficult="true"), difficult=False) == ()


def test_ignored_objects_need_the_setting():
    refused(xml(item("crack", ignore=1), item("oil")), r"ignore are crack.*ingest\.voc\.ignored")
    assert labels(item("crack", ignore=1), item("crack")) == ("crack",)  # the label does not hang on it
    assert labels(item("crack", ignore=1), item("oil"), ignored="count") == ("crack", "oil")
    assert labels(item("crack", ignore=1), item("oil"), ignored="leave_out") == ("oil",)


def test_parts_are_no_objects_and_nested_objects_are_refused():
    part = "<part><name>head</name></part>"
    assert labels(f"<object><name>person</name>{part}</object>") == ("person",)
    inner = "<object><name>person</name><part><object><name>head</name></object></part></object>"
    refused(xml(inner), "inside another")
    assert labels("<object><name>person</name><object><name>person</name></object></object>") == ("person",)


def test_namespaces_and_case_do_not_matter():
    assert parse_annotation(b'<annotation xmlns="http://x"><object><name>oil</name></object></annotation>').labels == (
        "oil",
    )
    assert parse_annotation(b"<Annotation><Object><Name>oil</Name></Object></Annotation>").labels == ("oil",)
    assert parse_annotation(b"<annotation><objects><object><name>oil</name></object></objects></annotation>").labels


@pytest.mark.parametrize(
    "inside",
    [
        "<label>oil</label>",
        "<item><name>oil</name></item>",
        "<bndbox><xmin>1</xmin></bndbox>",
        "<a><class>3</class></a>",
    ],
)
def test_labels_in_unknown_elements_are_refused(inside):
    refused(xml(inside), "no <object>, but <")


def test_an_annotation_without_objects_is_a_negative():
    heads = "<owner><name>wu</name></owner><source><annotation>x</annotation></source><segmented>0</segmented>"
    assert labels() == ()
    assert parse_annotation(xml(head=heads + "<size><width>1</width></size>")).labels == ()
    assert parse_annotation(voc_xml([])).labels == ()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'<annotations><image name="a.png"><box label="oil"/></image></annotations>', r"CVAT.*PASCAL VOC 1\.1"),
        (b"<annotations><meta/><track/></annotations>", "CVAT"),
        (b"<annotationlist><annotation/></annotationlist>", "TUD"),
        (b'<dataset><images><image file="a.png"/></images></dataset>', "dlib"),
        (xml(item("oil"), "<filename>b.png</filename>"), "describes 2 images"),
        (b"<set><annotation><object><name>a</name></object></annotation><annotation/></set>", "describes 2 images"),
        (xml("<object><bndbox/></object>"), "1 object.s. without a name"),
    ],
)
def test_xml_of_other_tools_is_refused_by_name(data, says):
    refused(data, says)


def test_one_xml_for_many_images_is_reported_by_name(tmp_path):
    for number in range(3):
        put(tmp_path / f"images/{number}.png", encoded(make_image(number)))
    put(tmp_path / "annotations.xml", b'<annotations><image name="0.png"><box label="oil"/></image></annotations>')
    why = guess_format(tmp_path)
    assert why[0] == "images"
    assert "annotations.xml is an XML of CVAT" in why[1]
    detail = rows_of("voc", tmp_path)["annotations.xml"].detail
    assert "CVAT" in detail
    assert "PASCAL VOC 1.1" in detail


LABELME = {"version": "5", "shapes": [{"label": "oil"}], "imagePath": "a.png", "imageData": None}
PER_IMAGE = {
    "LabelMe": LABELME,
    "Supervisely": {"description": "", "tags": [], "size": {"height": 1, "width": 1}, "objects": []},
    "VoTT": {"asset": {"name": "a"}, "regions": [], "version": "2"},
    "Darwin": {"version": "2.0", "item": {"name": "a"}, "annotations": []},
}
ALL_IMAGES = {
    "VIA": {"a.png123": {"filename": "a.png", "size": 1, "regions": [], "file_attributes": {}}},
    "VIA's": {"_via_settings": {}, "_via_img_metadata": {}},
    "Label Studio": [{"id": 1, "data": {"image": "a.png"}, "annotations": [{"result": []}]}],
    "CreateML": [{"image": "a.png", "annotations": [{"label": "oil", "coordinates": {"x": 1}}]}],
    "Labelbox": [{"data_row": {"id": 1}, "projects": {}}],
    "Datumaro": {"info": {}, "categories": {}, "items": []},
    "BDD100K": [{"name": "a.png", "labels": [{"category": "car"}]}],
    "Hasty": {"project_name": "x", "export_format_version": "1.1", "images": []},
    "FiftyOne": {"samples": []},
}


@pytest.mark.parametrize("tool", PER_IMAGE)
def test_foreign_json_per_image_is_refused_by_name(tmp_path, tool):
    for number, folder in enumerate(("line a", "line b", "line b")):  # no classes, though they look so
        put(tmp_path / folder / f"{number}.png", encoded(make_image(number)))
        put(tmp_path / folder / f"{number}.json", json.dumps(PER_IMAGE[tool]).encode())
    with pytest.raises(UserError, match=tool) as caught:
        guess_format(tmp_path)
    assert "--format folder" in str(caught.value)
    with pytest.raises(UserError, match=rf"(?s)no COCO JSON found.*{tool}"):
        rows_of("coco", tmp_path)


@pytest.mark.parametrize("tool", ALL_IMAGES)
def test_foreign_json_for_all_images_is_reported_by_name(tmp_path, tool):
    put(tmp_path / "a.png", encoded(make_image(0)))
    put(tmp_path / "export.json", json.dumps(ALL_IMAGES[tool]).encode())
    name, why = guess_format(tmp_path)
    assert name == "images"
    assert "export.json is " in why
    assert tool in why
    with pytest.raises(UserError, match=tool):
        guess_format(tmp_path / "export.json")
    with pytest.raises(UserError, match=tool):
        rows_of("coco", tmp_path / "export.json")


@pytest.mark.parametrize(
    ("name", "text", "tool"),
    [
        ("via.csv", "filename,file_size,file_attributes,region_count,region_id,region_shape_attributes\n", "VIA"),
        ("boxes.csv", "ImageID,Source,LabelName,Confidence\n", "Open Images"),
        ("gt.txt", "1,1,912,484,97,109,0,7,1\n", "MOT"),
        ("metadata.jsonl", '{"file_name": "a.png", "text": "x"}\n', "JSON lines"),
        ("x.manifest", '{"source-ref": "s3://b/a.png"}\n', "SageMaker"),
    ],
)
def test_other_foreign_files_are_reported_by_name(tmp_path, name, text, tool):
    put(tmp_path / "a.png", encoded(make_image(0)))
    put(tmp_path / name, text.encode())
    assert tool in guess_format(tmp_path)[1]


@pytest.mark.parametrize(
    ("line", "tool"),
    [
        ("Car 0.00 0 -1.58 587.01 173.33 614.12 200.12 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59", "KITTI"),
        ("2753 2408 2861 2385 2888 2468 2805 2502 plane 0", "DOTA"),
        ("imagesource:GoogleEarth", "DOTA"),
    ],
)
def test_foreign_label_text_is_refused_by_name(tmp_path, line, tool):
    with pytest.raises(AnnotationError, match=tool):
        parse_labels(f"{line}\n".encode(), {0: "crack"})
    put(tmp_path / "a.png", encoded(make_image(0)))
    put(tmp_path / "a.txt", line.encode())
    with pytest.raises(UserError, match=tool):
        if guess_format(tmp_path)[0] == "yolo":  # its lines begin with numbers, too
            put(tmp_path / "classes.txt", b"crack")
            raise UserError(rows_of("yolo", tmp_path)["a.txt"].detail)


def test_a_foreign_json_does_not_hide_class_folders(tmp_path):
    for number, label in enumerate(("oil", "crack")):
        put(tmp_path / label / "a.png", encoded(make_image(number)))
    put(tmp_path / "package.json", b'{"name": "x"}')
    assert guess_format(tmp_path) == ("folder", "2 folders of images, taken for classes: crack, oil")
    put(tmp_path / "old.json", json.dumps(ALL_IMAGES["CreateML"]).encode())
    name, why = guess_format(tmp_path)
    assert name == "folder"
    assert "old.json is a JSON of CreateML" in why
