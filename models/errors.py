"""The exception for errors that the user can fix: a file, a setting, an unreachable service."""

from collections.abc import Sequence

PREFIX = "error: "  # begins the command line's error messages
_MAX_CHARACTERS, _MAX_LINES = 600, 40  # per line and message: a message fits a screen


def shortened(value: object) -> str:
    """Return a value shortened for a message: a table's cell may contain an image, a list thousands of names."""
    lines = str(value).split("\n")
    kept = [
        line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} ... ({len(line)} characters)"
        for line in lines[:_MAX_LINES]
    ]
    return "\n".join(kept + [f"    ... and {len(lines) - _MAX_LINES} lines more"] * (len(lines) > _MAX_LINES))


class UserError(Exception):
    """Bad input; the command line prints it without a traceback and exits with 2.

    Args:
        what: What is wrong, in one sentence.
        where: The file, setting key or client.
        expected: The valid values.
        found: The actual value.
        hint: How to fix it.
    """

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        self.what, self.where, self.expected, self.found, self.hint = what, where, expected, found, hint
        parts = [str(what)]
        for name, value in (("where", where), ("expected", expected), ("found", found), ("hint", hint)):
            if value is not None:
                parts.append(f"  {name}: {value if name == 'hint' else shortened(value)}")
        super().__init__("\n".join(parts))

    @classmethod
    def from_lines(cls, lines: Sequence[str]) -> "UserError | None":
        """Return the last error in a command's output; None if there is none."""
        start = next((n for n in reversed(range(len(lines))) if lines[n].startswith(PREFIX)), None)
        if start is None:
            return None
        parts = {"what": lines[start].removeprefix(PREFIX)}
        part = "what"
        for line in lines[start + 1 :]:
            if not line.startswith("  "):
                break
            name, colon, value = line[2:].partition(": ")
            if colon and name in ("where", "expected", "found", "hint"):
                part, parts[name] = name, value
            else:
                parts[part] += f"\n{line}"
        return cls(parts.pop("what"), **parts)

    def __reduce__(self) -> tuple:
        # Prefect and process pools pickle exceptions; the default would call __init__ with the joined text.
        return (_rebuild, (self.what, self.where, self.expected, self.found, self.hint))


class LabelError(UserError):
    """A label is refused for its name; callers that know the data set add the label's file.

    Args:
        what: What is wrong, in one sentence.
        labels: The labels.
        where: The setting, if not the labels alone.
        expected: The valid values.
        found: The actual value.
        hint: How to fix it.
    """

    def __init__(
        self,
        what: str,
        labels: Sequence[str],
        *,
        where: str | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        self.labels, self.setting = tuple(labels), where
        names = f"label{'s' if len(self.labels) > 1 else ''} {' and '.join(self.labels)}"
        super().__init__(what, where=where or names, expected=expected, found=found, hint=hint)

    def at(self, places: Sequence[str]) -> UserError:
        """Return the same error with the place of each label."""
        named = [f"label {label!r}: {place}" for label, place in zip(self.labels, places, strict=True)]
        where = "; ".join(filter(None, (self.setting, *named)))
        return UserError(self.what, where=where, expected=self.expected, found=self.found, hint=self.hint)


def _rebuild(what: str, where: object, expected: object, found: object, hint: str | None) -> UserError:
    return UserError(what, where=where, expected=expected, found=found, hint=hint)
