"""The kind of an image file by its content and by its name, and advice for the kinds that are not read."""

import re
import struct
from importlib.util import find_spec

#: Suffixes of supported images, in lower case; the content then decides.
READ = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".mpo", ".png", ".apng", ".bmp", ".dib", ".gif", ".tif", ".tiff"}
    | {".webp", ".avif", ".avifs", ".jp2", ".j2k", ".jpf", ".jpx", ".j2c", ".jpc"}
    | {".ppm", ".pgm", ".pbm", ".pnm"}
)
HEIF = frozenset({".heic", ".heics", ".heif", ".heifs", ".hif"})
#: Camera raw formats. Many are TIFF files whose first image is a small preview.
RAW = frozenset(
    {".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".gpr", ".iiq", ".kdc", ".mef", ".mos", ".mrw"}
    | {".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"}
)
_DRAWINGS = frozenset({".svg", ".svgz", ".eps", ".cdr", ".emf", ".wmf"})
_SCIENCE = frozenset({".dcm", ".dicom", ".fits", ".fts", ".nii", ".mha", ".nrrd", ".czi", ".lif", ".nd2", ".svs"})
_OTHERS = frozenset(
    {".jxl", ".jxr", ".wdp", ".hdp", ".psd", ".psb", ".xcf", ".kra", ".ora", ".tga", ".ico", ".cur", ".icns", ".dds"}
    | {".exr", ".pfm", ".pam", ".pcx", ".sgi", ".ras", ".xbm", ".xpm", ".qoi", ".bpg", ".flif"}
)
#: Suffixes of unsupported images: such a file is an unusable input, not an unrelated file.
UNREAD = HEIF | RAW | _DRAWINGS | _SCIENCE | _OTHERS
#: All usual suffixes of images.
SUFFIXES = READ | UNREAD
#: Pillow's names of the formats that it does not try by default.
EXTRA_FORMATS = {"AVIF": "AVIF", "JPEG 2000": "JPEG2000", "PNM": "PPM", "HEIC": "HEIF"}
#: Part of the detail of every unsupported image.
NOT_READ = " is not read: "
#: First bytes of a file that ``content_kind`` inspects.
HEAD = 512

_BEGINS: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0\x10\0\0\0CR", "CR2"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"II\xbc\x01", "JPEG XR"),
    (b"8BPS", "PSD"),
    (b"gimp xcf", "XCF"),
    (b"v/1\x01", "EXR"),
    (b"#?RADIANCE", "HDR"),
    (b"#?RGBE", "HDR"),
    (b"DDS |", "DDS"),
    (b"icns", "ICNS"),
    (b"qoif", "QOI"),
    (b"BPG\xfb", "BPG"),
    (b"FLIF", "FLIF"),
    (b"SIMPLE  =", "FITS"),
    (b"FUJIFILMCCD-RAW", "RAF"),
    (b"IIRO", "ORF"),
    (b"IIRS", "ORF"),
    (b"MMOR", "ORF"),
    (b"IIU\0", "RW2"),
    (b"FOVb", "X3F"),
    (b"\0MRM", "MRW"),
    (b"%!PS-Adobe", "EPS"),
)
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF", b"crx ": "CR3", b"jxl ": "JPEG XL"}
_BRANDS |= dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), "HEIC")
_BRANDS |= dict.fromkeys((b"mif1", b"msf1", b"miaf"), "HEIC")
_CAMERA_KINDS = frozenset({"CR2", "CR3", "RAF", "ORF", "RW2", "X3F", "MRW", "DNG"})
_SUBFILE, _SUB_DIRECTORIES, _DNG_VERSION = 254, 330, 50706  # TIFF tags


def content_kind(head: bytes) -> str:
    """Return the kind of image that a file's first bytes (``HEAD`` of them) show; "" if unknown."""
    for begin, kind in _BEGINS:
        if head.startswith(begin):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        return _by_brand(head)
    if head[:2] == b"BM" and head[14:18] in {struct.pack("<I", size) for size in (12, 40, 52, 56, 64, 108, 124)}:
        return "BMP"
    if re.match(rb"P[1-6]\s+(#[^\n]*\n\s*)*\d+\s+(#[^\n]*\n\s*)*\d+\s", head):
        return "PNM"
    if head[128:132] == b"DICM":
        return "DICOM"
    if re.match(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*(<!DOCTYPE svg[^>]*>\s*)?<svg[\s>]", head, re.S):
        return "SVG"
    return ""


def _by_brand(head: bytes) -> str:
    """Return the kind of an ISO file by its brands, "" for a video; AVIF's brand may follow a general one."""
    (size,) = struct.unpack_from(">I", head, 0)
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, min(size, len(head)), 4))]
    kinds = [_BRANDS[brand] for brand in brands if brand in _BRANDS]
    if brands[0] not in _BRANDS:
        return ""
    return "AVIF" if "AVIF" in kinds else kinds[0]


def is_camera_raw(data: bytes, suffix: str) -> bool:
    """Check whether a TIFF is a camera raw file: a decoder would find a preview or undeveloped values in it."""
    if suffix.lower() in RAW:
        return True
    order = "<" if data[:2] == b"II" else ">"
    try:
        (start,) = struct.unpack_from(f"{order}I", data, 4)
        (count,) = struct.unpack_from(f"{order}H", data, start)
        entries = [struct.unpack_from(f"{order}HHII", data, start + 2 + 12 * number) for number in range(count)]
    except struct.error:
        return False
    tags = {tag: value if order == "<" or kind != 3 else value >> 16 for tag, kind, _, value in entries}
    return _DNG_VERSION in tags or (_SUB_DIRECTORIES in tags and bool(tags.get(_SUBFILE, 0) & 1))


def describe_unread(kind: str, suffix: str) -> str:
    """Return a line about a file of a kind that is not read, with advice; "" for what is no image at all.

    Args:
        kind: What ``content_kind`` says.
        suffix: The file name's, which decides when the content says nothing.
    """
    low = suffix.lower()
    name = kind or (low.lstrip(".").upper() if low in UNREAD - HEIF else "")
    if not name:
        return ""
    if name == "HEIC":
        way = "convert it to JPEG or PNG" if has_heif() else "pip install pillow-heif, or convert it to JPEG or PNG"
    elif name in _CAMERA_KINDS or low in RAW:
        name = f"camera raw ({low.lstrip('.').upper() if low in RAW else name})"
        way = "export it as JPEG, PNG or TIFF with the camera's program"
    elif name in ("SVG", "EPS") or low in _DRAWINGS:
        way = "it holds vector graphics, not pixels; export it as PNG"
    elif name in ("DICOM", "FITS") or low in _SCIENCE:
        way = "export it as PNG or 8-bit TIFF, with the relevant range of values"
    else:
        way = "convert it to PNG or JPEG"
    return f"{name}{NOT_READ}{way}"


def has_heif() -> bool:
    """Check whether the extra ``heif`` is installed."""
    return find_spec("pillow_heif") is not None


_NO_IMAGES = (
    (b"version https://git-lfs", "a pointer of Git LFS, not the image: git lfs pull"),
    (b"<!doctype html", "an HTML page, as a failed download leaves it"),
    (b"<html", "an HTML page, as a failed download leaves it"),
    (b"<?xml", "XML text"),
    (b"{", "JSON or other text"),
)


def describe_beginning(data: bytes) -> str:
    """Describe the bytes of a file that no decoder accepts, by how they begin."""
    head = data[:64].lstrip().lower()
    known = next((what for mark, what in _NO_IMAGES if head.startswith(mark)), "")
    kind = "" if known else content_kind(data[:HEAD])
    if kind:
        return f"{kind} of a variant that no decoder supports: convert it to PNG or JPEG"
    return f"it is {known}" if known else f"the file begins with {data[:12].hex(' ')}"
