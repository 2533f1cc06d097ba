"""The one exception for what a user can mend: a file, a setting, a service that does not answer."""

from collections.abc import Sequence

PREFIX = "error: "  # of the line that the command line begins an error with
_LONGEST, _MOST = 600, 40  # letters of a line, and lines: a message fits a screen


def shortened(value: object) -> str:
    """A value as a message shows it: a cell of a table may hold a image, a list thousands of names."""
    lines = str(value).split("\n")
    kept = [line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ... ({len(line)} letters)" for line in lines[:_MOST]]
    return "\n".join(kept + [f"    ... and {len(lines) - _MOST} lines more"] * (len(lines) > _MOST))


class UserError(Exception):
    """Bad input from outside; the command line prints it without a traceback and exits with 2.

    Args:
        what: What is wrong, in one sentence.
        where: The file, setting key or client that it concerns.
        expected: What would have been right.
        found: What was there instead.
        hint: What to do about it.
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
        """The last error in the output of a command, as the command line prints it; None when there is none."""
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
    """A label is refused for its name; who knows the data set says which file the label is from.

    Args:
        what: What is wrong, in one sentence.
        labels: The labels that it concerns.
        where: The setting that it concerns, if not the labels alone.
        expected: What would have been right.
        found: What was there instead.
        hint: What to do about it.
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
        """The same refusal, with the place of each label."""
        named = [f"label {label!r}: {place}" for label, place in zip(self.labels, places, strict=True)]
        where = "; ".join(filter(None, (self.setting, *named)))
        return UserError(self.what, where=where, expected=self.expected, found=self.found, hint=self.hint)


def _rebuild(what: str, where: object, expected: object, found: object, hint: str | None) -> UserError:
    return UserError(what, where=where, expected=expected, found=found, hint=hint)
