"""The settings of one update transform: one of the transforms', told apart by ``name``."""

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field

from tasks.core.update_transforms import TRANSFORMS, load_transform

TransformSettings: Any = Annotated[
    reduce(or_, (load_transform(name).Settings for name in TRANSFORMS)), Field(discriminator="name")
]
