"""Files that NAS boxes, desktops, cameras and tools leave among images: thumbnails, bins, versions, indexes.

Case does not matter. Names that begin with a dot are hidden anyway (``tree``) and not listed here.
"""

import re
from functools import lru_cache

_FOLDERS = frozenset(
    {
        # NAS: Synology, QNAP, NetApp and others
        "@eadir", "@tmp", "@sharebin", "@sharesnap", "@synodrive", "@synologydrive", "@database", "@recycle",
        "@recently-snapshot", "@recently deleted", "@downloadstation", "@__thumb", "#recycle", "#snapshot",
        "~snapshot", "lost+found", "network trash folder", "network recycle bin",
        # desktops
        "$recycle.bin", "$recycle", "system volume information", "lost.dir", "__macosx", "_macosx",
        "temporary items", "thevolumesettingsfolder", "desktop db", "desktop df",
        # photo programs
        "captureone", "[originals]", "picasaoriginals", "digikam thumbnails", "~dtrash",
        # tools
        "__pycache__", "node_modules", "mlruns", "lightning_logs", "wandb",
    }
)  # fmt: skip
_FOLDER_ENDS = (".photoslibrary", ".photolibrary", ".aplibrary", ".lrdata", ".lrcat-data", ".cocatalog", ".egg-info")
_FILES = frozenset(
    {
        "thumbs.db", "desktop.ini", "ehthumbs.db", "ehthumbs_vista.db", "folder.ini", "iconcache.db", "icon\r",
        "picasa.ini", "zbthumbnail.info", "pspbrwse.jbf", "thumbdata", "photothumb.db", "albumartsmall.jpg",
    }
)  # fmt: skip
_FILE_ENDS = (
    ".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".download", ".opdownload", ".aria2", ".!ut",
    ".!qb", ".!sync", ".bts", ".swp", ".swo", ".bak", ".lnk", ".url", ".webloc", ".thm", ".lrcat", ".xmp.lock",
    "@synoeastream", "@synoresource", ".ds_store", ":zone.identifier",
)  # fmt: skip
_FILE_BEGINS = ("~$", "~syncthing~", "synophoto_thumb_", "synofile_thumb_", "synophoto_film_", "albumart_{")
_PATTERNS = re.compile(r"found\.\d{3}|@gmt-[\d.-]+|\.?trash-\d+|backup files \d{4}-.*|thumbs\.db:.*|thumbs \(\d+\)\.db")


def find_litter(parts: tuple[str, ...]) -> str:
    """Return the part of a path that makes the file litter, "" if none does.

    Args:
        parts: The path's folders, then the file's name.
    """
    for folder in parts[:-1]:
        if _litter_folder(folder):
            return folder
    name = parts[-1].lower()
    if name in _FILES or name.endswith(_FILE_ENDS) or name.startswith(_FILE_BEGINS) or _PATTERNS.fullmatch(name):
        return parts[-1]
    return parts[-1] if name.endswith("~") and len(name) > 1 else ""


@lru_cache(maxsize=65536)
def _litter_folder(folder: str) -> bool:
    name = folder.lower()
    return (
        name in _FOLDERS
        or name.startswith("@syno")
        or name.endswith(_FOLDER_ENDS)
        or bool(_PATTERNS.fullmatch(name))
        or folder in ("RECYCLER", "RECYCLED")
    )


_THUMBNAIL_FOLDER = re.compile(r"(.*/|)_?thumb(?:nail)?s?/([^/]+)", re.IGNORECASE)
_BESIDE = (
    re.compile(r"(.*/|)thumb(?:nail)?[_-]([^/]+)", re.IGNORECASE),
    re.compile(r"(.*)[_-]thumb(?:nail)?(\.\w+)", re.IGNORECASE),
    re.compile(r"(.*)\.sync-conflict-\d{8}-\d{6}-\w+(\.\w+)"),
    re.compile(r"(.*) \([^()/]*conflicted copy[^()/]*\)(\.\w+)"),
)


def thumbnail_original(path: str) -> str:
    """Return the image of which this file is a thumbnail or sync conflict, by its name; "" for any other file."""
    low = path.lower()
    if "thumb" not in low and "conflict" not in low:
        return ""
    found = (pattern.fullmatch(path) for pattern in (_THUMBNAIL_FOLDER, *_BESIDE))
    return next((match[1] + match[2] for match in found if match), "")
