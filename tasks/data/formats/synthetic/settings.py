"""Settings of the drawn image sets."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.base_settings import Section

Share = Annotated[float, Field(ge=0, le=1)]
Cause = Literal["lighting", "background", "viewpoint", "blur"]


class SyntheticSettings(Section):
    """Which set is drawn, how large it is, and how much its sites differ."""

    set: Literal["cabinet", "defects", "scrap", "scenes"] = Field(
        "cabinet", description="The drawn set: cabinet and defects are multi-label, scrap and scenes single-label."
    )
    images: int = Field(2400, ge=1, description="Images in all; sites get fixed, uneven shares of them.")
    sites: int = Field(6, ge=1, le=100, description="Number of sites.")
    site_shift: float = Field(
        1.0, ge=0, le=1, description="How far sites differ in looks (light, background, camera); 0 = all alike."
    )
    lighting: Share | None = Field(
        None, description="The same for brightness, colour of the light and fading alone; null: as site_shift."
    )
    background: Share | None = Field(None, description="The same for the background alone; null: as site_shift.")
    viewpoint: Share | None = Field(None, description="The same for the camera's angles alone; null: as site_shift.")
    blur: Share | None = Field(None, description="The same for blur and sensor noise alone; null: as site_shift.")
    correlation: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Factor on the planted label co-occurrence, 0 = independent labels; for the multi-label sets.",
    )
    site_correlation: float = Field(
        1.0,
        ge=0,
        le=1,
        description="How far a site's label co-occurrence and prevalence deviate from the shared ones; 0 = the same.",
    )
    site_prevalence: Share | None = Field(
        None, description="The same for the prevalence alone; null: as site_correlation."
    )

    @property
    def prevalence_shift(self) -> float:
        """How far a site's prevalences are its own, 0 to 1."""
        return self.site_correlation if self.site_prevalence is None else self.site_prevalence

    def shift(self, cause: Cause) -> float:
        """How far sites differ for one cause alone, 0 to 1."""
        own: float | None = getattr(self, cause)
        return self.site_shift if own is None else own

    @model_validator(mode="after")
    def _an_image_for_each_site(self) -> Self:
        if self.images < self.sites:
            raise ValueError(f"images ({self.images}) must be at least sites ({self.sites})")
        return self
