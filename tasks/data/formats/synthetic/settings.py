"""Settings of the synthetic data sets."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section

Share = Annotated[float, Field(ge=0, le=1)]
Cause = Literal["lighting", "background", "viewpoint", "blur"]


class SyntheticSettings(Section):
    """Which set is rendered, its size, and how much its sites differ."""

    set: Literal["cabinet", "defects", "inspection", "scrap", "scenes"] = Field(
        "cabinet",
        description="The set: cabinet, defects and inspection are multi-label, scrap and scenes single-label.",
    )
    images: int = Field(2400, ge=1, description="Total number of images; sites have fixed, uneven shares of them.")
    sites: int = Field(6, ge=1, le=100, description="Number of sites.")
    site_shift: float = Field(
        1.0, ge=0, le=1, description="How far sites differ in appearance (light, background, camera); 0 = all alike."
    )
    lighting: Share | None = Field(
        None, description="The same for brightness, colour of the light and fading only; null: as site_shift."
    )
    background: Share | None = Field(None, description="The same for the background only; null: as site_shift.")
    viewpoint: Share | None = Field(None, description="The same for the camera's angles only; null: as site_shift.")
    blur: Share | None = Field(None, description="The same for blur and sensor noise only; null: as site_shift.")
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
        None, description="The same for the prevalence only; null: as site_correlation."
    )

    @property
    def prevalence_shift(self) -> float:
        """Return how far a site's prevalences deviate from the shared ones, 0 to 1."""
        return self.site_correlation if self.site_prevalence is None else self.site_prevalence

    def shift(self, cause: Cause) -> float:
        """Return how far sites differ by one cause, 0 to 1."""
        own: float | None = getattr(self, cause)
        return self.site_shift if own is None else own

    @model_validator(mode="after")
    def _an_image_for_each_site(self) -> Self:
        if self.images < self.sites:
            raise ValueError(f"images ({self.images}) must be at least sites ({self.sites})")
        return self
