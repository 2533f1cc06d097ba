"""The one exception for what a user can mend: a file, a setting, a service that does not answer."""


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
                parts.append(f"  {name}: {value}")
        super().__init__("\n".join(parts))

    def __reduce__(self) -> tuple:
        # Prefect and process pools pickle exceptions; the default would call __init__ with the joined text.
        return (_rebuild, (self.what, self.where, self.expected, self.found, self.hint))


def _rebuild(what: str, where: object, expected: object, found: object, hint: str | None) -> UserError:
    return UserError(what, where=where, expected=expected, found=found, hint=hint)
