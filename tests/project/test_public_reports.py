"""Public bug reports about labelling tools, converters and image libraries, reproduced small, named by issue.

The image must never get a wrong label, never become a false negative, and no file may be lost silently.
"""

import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from models.errors import UserError
from tests.support.format_rows import classes_of, rows_of
from tests.support.image_trees import UPRIGHT, ingested, tree
from tests.support.voc_trees import encoded, make_image

XML = "<annotation><object><name>{}</name></object></annotation>"


def coco(images, categories, annotations):
    return json.dumps({"images": images, "categories": categories, "annotations": annotations}).encode()


def box(number, image, category, **more):
    return {"id": number, "image_id": image, "category_id": category, "bbox": [1, 1, 5, 5]} | more


def labels(rows):
    return {path: row.labels for path, row in rows.items() if row.status in ("ok", "fixed") and row.width}


def no_negative(rows):
    return not [path for path, row in rows.items() if row.slot is not None and row.labels == []]


def test_label_studio_9366_file_name_holds_the_path_inside_the_tool(tmp_path):
    """COCO exports name images by the tool's own storage path."""
    images = [{"id": n, "file_name": f"/data/upload/3/ab12-{n}.png"} for n in (1, 2)]
    data = coco(images, [{"id": 0, "name": "car"}, {"id": 1, "name": "truck"}], [box(1, 1, 0), box(2, 2, 1)])
    root = tree(tmp_path, {"images/ab12-1.png": make_image(1), "images/ab12-2.png": make_image(2), "result.json": data})
    found = outcome("coco", root)
    if isinstance(found, UserError):
        assert "ab12-1.png" in str(found)
    else:
        assert labels(found) == {"images/ab12-1.png": ["car"], "images/ab12-2.png": ["truck"]}


def outcome(source, root, **options):
    """Return the rows, or the refusal; any other exception is a fault."""
    try:
        return rows_of(source, root, **options)
    except UserError as error:
        assert len(str(error).splitlines()) < 40
        assert "Traceback" not in str(error)
        return error


def test_label_studio_6609_the_first_category_has_the_id_0(tmp_path):
    images = [{"id": 0, "file_name": "a.png"}, {"id": 1, "file_name": "b.png"}]
    data = coco(images, [{"id": 0, "name": "car"}, {"id": 1, "name": "truck"}], [box(0, 0, 0), box(1, 1, 1)])
    rows = rows_of("coco", tree(tmp_path, {"a.png": make_image(1), "b.png": make_image(2), "r.json": data}))
    assert labels(rows) == {"a.png": ["car"], "b.png": ["truck"]}


def test_pylabel_46_category_ids_are_texts_in_the_annotations(tmp_path):
    more = {"iscrowd": 0.0, "difficult": "0", "segmentation": None, "truncated": "0"}
    data = coco([{"id": 208, "file_name": "a.png"}], [{"id": 0, "name": "LP", "supercategory": None}],
                [box(112, 208, "0", **more)])  # fmt: skip
    rows = rows_of("coco", tree(tmp_path, {"a.png": make_image(1), "b.json": data}))
    assert labels(rows) == {"a.png": ["LP"]}


def test_labelme_852_unused_background_category_is_no_label(tmp_path):
    data = coco([{"id": 1, "file_name": "a.png"}],
                [{"id": 0, "name": "_background_", "supercategory": None}, {"id": 1, "name": "dog"}],
                [box(1, 1, 1)])  # fmt: skip
    root = tree(tmp_path, {"a.png": make_image(1), "b.json": data})
    assert labels(rows_of("coco", root)) == {"a.png": ["dog"]}
    assert classes_of("coco", root) == ["dog"]


def test_datumaro_1160_two_categories_of_one_name(tmp_path):
    """A project whose own name is that of a class: id 0 is the project, id 1 the class."""
    categories = [{"id": 0, "name": "fish", "supercategory": "none"},
                  {"id": 1, "name": "fish", "supercategory": "fish"},
                  {"id": 2, "name": "trap", "supercategory": "fish"}]  # fmt: skip
    data = coco([{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}], categories,
                [box(1, 1, 1), box(2, 2, 2)])  # fmt: skip
    rows = rows_of("coco", tree(tmp_path, {"a.png": make_image(1), "b.png": make_image(2), "c.json": data}))
    assert labels(rows) == {"a.png": ["fish"], "b.png": ["trap"]}


def test_ultralytics_21224_labels_in_the_folder_called_images(tmp_path):
    files = {"one/1.png": make_image(1), "one/1.txt": b"0 .5 .5 .1 .1", "two/images/2.png": make_image(2),
             "two/images/2.txt": b"1 .5 .5 .1 .1", "classes.txt": b"car\ntruck\n"}  # fmt: skip
    rows = outcome("yolo", tree(tmp_path, files))
    assert isinstance(rows, UserError) or labels(rows) == {"one/1.png": ["car"], "two/images/2.png": ["truck"]}


def test_ultralytics_8839_label_files_with_names_and_pixels(tmp_path):
    """The Open Images tool writes `Airplane 0.0 146.0 392.3 325.4` to Label/NAME.txt below a class folder."""
    files = {f"train/Airplane/{n}.png": make_image(n) for n in range(3)}
    files |= {f"train/Airplane/Label/{n}.txt": b"Airplane 0.0 14.6 39.2 32.5" for n in range(3)}
    root = tree(tmp_path, files)
    found = outcome("yolo", root)
    assert isinstance(found, UserError) or not labels(found) or labels(found)["train/Airplane/0.png"] == ["Airplane"]
    if not isinstance(found, UserError):
        assert no_negative(found)


def test_cvat_5653_a_list_with_backslashes_and_trailing_blanks(tmp_path):
    names = ["8947_서울3720", "7626_FAIL"]
    files = {f"obj_train_data/{name}.png": make_image(n) for n, name in enumerate(names)}
    files |= {f"obj_train_data/{name}.txt": f"{n} .5 .5 .1 .1".encode() for n, name in enumerate(names)}
    files["train.txt"] = "".join(f"obj_train_data\\{name}.png \n" for name in names).encode()
    files |= {"obj.names": b"car\ntruck\n",
              "obj.data": b"classes = 2\ntrain = train.txt\nnames = obj.names\nbackup = backup/\n"}  # fmt: skip
    rows = rows_of("yolo", tree(tmp_path, files))
    assert labels(rows) == {f"obj_train_data/{names[0]}.png": ["car"], f"obj_train_data/{names[1]}.png": ["truck"]}


def test_vott_133_two_paths_without_a_line_break_between_them(tmp_path):
    files = {f"obj/{n}.png": make_image(n) for n in range(3)} | {f"obj/{n}.txt": b"0 .5 .5 .1 .1" for n in range(3)}
    files |= {"train.txt": b"obj/0.pngobj/1.png\nobj/2.png\n\n", "obj.names": b"car\n",
              "obj.data": b"classes=1\ntrain=train.txt\nnames=obj.names\n"}  # fmt: skip
    root = tree(tmp_path, files)
    found = outcome("yolo", root)
    assert isinstance(found, UserError)
    assert "obj/0.png and obj/1.png" in str(found)


def test_cvat_8090_a_class_number_beyond_the_names(tmp_path):
    files = {"a.png": make_image(1), "a.txt": b"138 .5 .5 .1 .1", "obj.names": b"car\ntruck\n"}
    found = outcome("yolo", tree(tmp_path, files))
    if not isinstance(found, UserError):
        row = found["a.png"]
        assert row.status == "quarantined" or found["a.txt"].status == "quarantined"
        assert "138" in row.detail + found["a.txt"].detail
        assert no_negative(found)


def test_cvat_8958_names_is_a_file(tmp_path):
    files = {"images/a.png": make_image(1), "labels/a.txt": b"1 .5 .5 .1 .1", "obj.names": b"car\ntruck\n",
             "data.yaml": b"nc: 2\nclasses: 2\nnames: obj.names\ntrain: images\nbackup: backup/\n"}  # fmt: skip
    found = outcome("yolo", tree(tmp_path, files))
    if isinstance(found, UserError):
        assert "names" in str(found)
    else:
        assert labels(found) == {"images/a.png": ["truck"]}


def test_datumaro_2084_voc_with_lists_of_labels_and_no_xml(tmp_path):
    files = {f"JPEGImages/{n}.png": make_image(n) for n in range(3)}
    files["ImageSets/Main/cat_train.txt"] = b"0  1\n1 -1\n2  0\n"
    files["ImageSets/Main/dog_train.txt"] = b"0 -1\n1  1\n2 -1\n"
    root = tree(tmp_path, files)
    with pytest.raises(UserError) as caught:
        ingested(root, tmp_path.with_name("out"), "voc")
    assert "ImageSets/Main/cat_train.txt" in str(caught.value)
    assert "ingest.source=table" in str(caught.value)


def test_chexpert_1_an_uncertain_label_is_neither_yes_nor_no(tmp_path):
    data = b"Path,Edema,Fracture\na.png,1.0,\nb.png,-1.0,1.0\nc.png,0.0,1.0\n"
    root = tree(tmp_path, {"a.png": make_image(1), "b.png": make_image(2), "c.png": make_image(3), "train.csv": data})
    found = outcome("table", root, image="Path", one_hot=["Edema", "Fracture"])
    if isinstance(found, UserError):
        assert "-1" in str(found)
    else:
        assert found["b.png"].status == "quarantined"
        assert "-1" in found["b.png"].detail
        assert found["c.png"].labels == ["Fracture"]


def test_napari_15_the_index_that_pandas_writes_is_no_label(tmp_path):
    data = b",image,rust,crack\n0,a.png,1,0\n1,b.png,0,1\n"
    root = tree(tmp_path, {"a.png": make_image(1), "b.png": make_image(2), "t.csv": data})
    found = outcome("table", root)
    if not isinstance(found, UserError):
        assert labels(found) == {"a.png": ["rust"], "b.png": ["crack"]}
    named = b"Unnamed: 0,image,labels\n0,a.png,rust\n1,b.png,crack\n"
    rows = rows_of("table", tree(tmp_path / "two", {"a.png": make_image(1), "b.png": make_image(2), "t.csv": named}))
    assert labels(rows) == {"a.png": ["rust"], "b.png": ["crack"]}


def test_labelimg_981_a_list_of_classes_that_lost_its_head(tmp_path):
    """Saving after a restart leaves one class in classes.txt; numbers in the label files are those of the old list."""
    files = {f"{n}.png": make_image(n) for n in range(3)} | {f"{n}.txt": f"{n} .5 .5 .1 .1".encode() for n in range(3)}
    found = outcome("yolo", tree(tmp_path, files | {"classes.txt": b"pills\n"}))
    if not isinstance(found, UserError):
        assert found["1.png"].status == "quarantined"
        assert no_negative(found)
        with pytest.raises(UserError):
            ingested(tmp_path, tmp_path.with_name("out"), "yolo", max_bad_share=0.02)


def test_datasets_4814_metadata_beside_class_folders_does_not_become_the_labels(tmp_path):
    files = {f"{label}/{n}.png": make_image(n + 9 * (label == "dog")) for label in ("cat", "dog") for n in range(3)}
    lines = ["file_name,caption"] + [f"{label}/{n}.png,a photo" for label in ("cat", "dog") for n in range(3)]
    files["metadata.csv"] = "\n".join(lines).encode()
    rows = rows_of("folder", tree(tmp_path, files))
    assert set(map(tuple, labels(rows).values())) == {("cat",), ("dog",)}


UPRIGHT_CASES = ("exif after the pixels", "xmp before exif", "xmp alone", "tiff")


def arrow(width=40, height=30):
    """An image without any symmetry: a different colour in each corner."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] = (250, 10, 10)
    pixels[: height // 2, width // 2 :] = (10, 250, 10)
    pixels[height // 2 :, : width // 2] = (10, 10, 250)
    return pixels


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def exif_block(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/">{}</rdf:Description></rdf:RDF></x:xmpmeta>'
)


def oriented_file(case, orientation):
    """Return suffix and bytes of a file of ``arrow`` with this orientation."""
    image = Image.fromarray(arrow())
    if case == "exif after the pixels":  # Pillow#4529
        data = encoded(image, "PNG")
        return "png", data[:-12] + chunk(b"eXIf", exif_block(orientation)[6:]) + data[-12:]
    if case == "xmp before exif":  # pi#8571
        data = encoded(image, "JPEG", exif=exif_block(orientation), quality=95)
        body = b"http://ns.adobe.com/xap/1.0/\x00" + XMP.format("").encode()
        start = data.index(b"\xff\xe1")
        return "jpg", data[:start] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[start:]
    if case == "xmp alone":  # Pillow#6462
        text = XMP.format(f"<tiff:Orientation>{orientation}</tiff:Orientation>").encode()
        data = encoded(image, "PNG")
        body = b"XML:com.adobe.xmp\x00\x00\x00\x00\x00" + text
        return "png", data[:33] + chunk(b"iTXt", body) + data[33:]
    exif = Image.Exif()  # Pillow#8554
    exif[0x0112] = orientation
    return "tif", encoded(image, "TIFF", exif=exif)


@pytest.mark.parametrize("orientation", [3, 6, 8])
@pytest.mark.parametrize("case", UPRIGHT_CASES)
def test_pillow_orientation_is_found_wherever_it_is_written_and_applied_once(tmp_path, case, orientation):
    suffix, data = oriented_file(case, orientation)
    root = tree(tmp_path / "in", {f"x/a.{suffix}": data, "y/b.png": make_image(3)})
    found = ingested(root, tmp_path / "out")
    expected = UPRIGHT[orientation](arrow())
    assert (found.rows[f"x/a.{suffix}"].width, found.rows[f"x/a.{suffix}"].height) == expected.shape[1::-1]
    corner = found.pixels[f"x/a.{suffix}"][4, 4]
    assert np.abs(corner - expected[4, 4]).max() < 40


def test_pillow_434_a_gif_keeps_its_colours(tmp_path):
    image = Image.fromarray(arrow()).quantize(8)
    image.info["transparency"] = 7
    root = tree(tmp_path / "in", {"x/a.gif": encoded(image, "GIF", transparency=7), "y/b.png": make_image(3)})
    found = ingested(root, tmp_path / "out")
    assert np.abs(found.pixels["x/a.gif"][4, 4] - arrow()[4, 4]).max() < 40
