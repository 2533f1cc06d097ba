"""Settings of the drawn image sets."""

from typing import Literal, Self

from pydantic import Field, model_validator

from models.base_settings import Section


class RenderedSettings(Section):
    """Which set is drawn, how large it is, and how much its sites differ."""

    set: Literal["cabinet"] = Field("cabinet", description="The drawn set.")
    images: int = Field(2400, ge=1, description="Images in all; sites get fixed, uneven shares of them.")
    sites: int = Field(6, ge=1, le=100, description="Number of sites.")
    site_shift: float = Field(
        1.0, ge=0, le=1, description="How far sites differ in looks (light, panel, camera); 0 = all alike."
    )
    correlation: float = Field(
        1.0, ge=0, le=1, description="Factor on the planted label co-occurrence; 0 = labels are independent."
    )
    site_correlation: float = Field(
        1.0,
        ge=0,
        le=1,
        description="How far a site's label co-occurrence and prevalence deviate from the shared ones; 0 = the same.",
    )

    @model_validator(mode="after")
    def _an_image_for_each_site(self) -> Self:
        if self.images < self.sites:
            raise ValueError(f"images ({self.images}) must be at least sites ({self.sites})")
        return self
