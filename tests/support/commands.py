"""The commands that documentation shows."""

import re
import shlex
from pathlib import Path


def commands(page: Path) -> list[list[str]]:
    """Every ``fedscene`` command of a page's code blocks or a preset's head comment, split as a shell would."""
    text = page.read_text()
    if page.suffix == ".yaml":
        text = "\n".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    else:
        text = "\n".join(re.findall(r"```\n(.*?)```", text, flags=re.DOTALL))
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip().startswith("fedscene ")]
