"""Values that JSON can hold."""

import math
from typing import Any


def plain(value: Any) -> Any:
    """Keys as texts, tuples as lists, and null for numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
