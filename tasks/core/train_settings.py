"""Settings of the local loop: steps, learning rates, the order of the images and their augmentation."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section

Share = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


class ScheduleSettings(Section):
    """How the learning rate changes from round to round, as a factor of ``train.lr``."""

    name: Literal["constant", "step", "exponential", "cosine", "warmup"] = Field(
        "constant",
        description="constant; step: times gamma from each milestone on; exponential: times gamma after every round; "
        "cosine: half a cosine from train.lr in round 1 down to the floor after the last of `rounds`; warmup: a linear "
        "rise, then the schedule `after`.",
    )
    milestones: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (), description="step: rounds from which on the rate is multiplied by gamma, ascending."
    )
    gamma: float = Field(
        0.1, gt=0, le=1, description="step: factor at each milestone; exponential: factor of a round, such as 0.998."
    )
    rounds: int | None = Field(
        None, ge=1, description="cosine: its length in rounds, apart from federation.rounds, which may be raised later."
    )
    floor: float = Field(0.0, ge=0, le=1, description="cosine: lowest rate, as a share of train.lr.")
    warmup_rounds: int = Field(
        5, ge=1, description="warmup: rounds of the rise; round r of n trains with r/n of train.lr."
    )
    after: Literal["constant", "cosine"] = Field(
        "constant", description="warmup: what follows; cosine ends with round `rounds`, counted from round 1."
    )

    @model_validator(mode="after")
    def _parts_are_consistent(self) -> Self:
        if self.name == "step" and (not self.milestones or list(self.milestones) != sorted(set(self.milestones))):
            raise ValueError(f"step needs milestones, ascending rounds; found {list(self.milestones)}")
        if self.uses_cosine and self.rounds is None:
            raise ValueError("cosine needs its length in rounds: set train.schedule.rounds")
        if self.name == "warmup" and self.uses_cosine and self.warmup_rounds >= (self.rounds or 0):
            raise ValueError(
                f"warmup_rounds {self.warmup_rounds} leave no round for the cosine, which ends with round {self.rounds}"
            )
        return self

    @model_validator(mode="after")
    def _all_values_are_used(self) -> Self:
        parts = {"step": ("milestones", "gamma"), "exponential": ("gamma",), "warmup": ("warmup_rounds", "after")}
        used = parts.get(self.name, ())
        unused = [field for fields in parts.values() for field in fields if field not in used]
        unused += [] if self.uses_cosine else ["rounds", "floor"]
        self.refuse_changed(unused, f"the schedule {self.name} does not use it")
        return self

    @property
    def uses_cosine(self) -> bool:
        """Return whether the rate follows a cosine, from the start or after the warm-up."""
        return self.name == "cosine" or (self.name == "warmup" and self.after == "cosine")


class GroupRates(Section):
    """Factors of the learning rate for the two parts of a network."""

    backbone: float = Field(1.0, gt=0, description="Factor of the learning rate of the image encoder.")
    head: float = Field(1.0, gt=0, description="Factor of the learning rate of everything else.")

    @property
    def differ(self) -> bool:
        """Return whether the parts have different rates."""
        return self.backbone != self.head


class AugmentSettings(Section):
    """Random changes of each training image, drawn anew for each client, round and epoch; all off by default."""

    crop: Literal["none", "pad", "resized"] = Field(
        "none",
        description="pad: the border is widened by `padding` and a window of the image's size is cut out; resized: a "
        "part of random area and shape is enlarged to the image's size (torchvision's RandomResizedCrop).",
    )
    padding: int = Field(4, ge=1, description="crop pad: pixels added at each side.")
    border: Literal["zeros", "edge", "reflect"] = Field(
        "zeros", description="What is beyond the image's border, for crop pad and rotation: black, its edge, or itself."
    )
    scale: tuple[Share, Share] = Field((0.08, 1.0), description="crop resized: smallest and largest share of the area.")
    ratio: tuple[Positive, Positive] = Field(
        (0.75, 4 / 3), description="crop resized: smallest and largest width over height."
    )
    rotation: float = Field(0.0, ge=0, le=180, description="Largest angle in degrees, to either side.")
    vertical_flip: bool = Field(False, description="Random vertical flips. Leave off where up and down are labels.")
    brightness: float = Field(0.0, ge=0, description="b: brightness is multiplied by a factor from max(0, 1-b) to 1+b.")
    contrast: float = Field(0.0, ge=0, description="The same for contrast.")
    saturation: float = Field(0.0, ge=0, description="The same for saturation.")
    hue: float = Field(0.0, ge=0, le=0.5, description="Largest change of the hue, as a share of the colour circle.")
    erasing: float = Field(0.0, ge=0, le=1, description="Share of the images in which a random rectangle is black.")
    erasing_scale: tuple[Share, Share] = Field(
        (0.02, 0.33), description="erasing: smallest and largest share of the area."
    )
    erasing_ratio: tuple[Positive, Positive] = Field(
        (0.3, 10 / 3), description="erasing: smallest and largest height over width."
    )

    @property
    def changes(self) -> bool:
        """Return whether any change is on."""
        colours = (self.brightness, self.contrast, self.saturation, self.hue)
        return self.crop != "none" or self.vertical_flip or any((self.rotation, *colours, self.erasing))

    @model_validator(mode="after")
    def _ranges_ascend(self) -> Self:
        for name in ("scale", "ratio", "erasing_scale", "erasing_ratio"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} must be the smaller number first, found {low:g}, {high:g}")
        return self

    @model_validator(mode="after")
    def _all_values_are_used(self) -> Self:
        if self.crop != "resized":
            self.refuse_changed(("scale", "ratio"), f"it is for crop resized, and crop is {self.crop}")
        if self.crop != "pad":
            self.refuse_changed(("padding",), f"it is for crop pad, and crop is {self.crop}")
            if not self.rotation:
                self.refuse_changed(("border",), "it is for crop pad and rotation, and both are off")
        if not self.erasing:
            self.refuse_changed(("erasing_scale", "erasing_ratio"), "erasing is 0")
        return self


class TrainSettings(Section):
    """How a client trains in one stage. A fresh optimiser is made for every client, stage and round."""

    epochs: int = Field(2, ge=1, description="Passes over the client's images in one stage (paper: 10).")
    steps: int | None = Field(
        None, ge=1, description="Optimiser steps in one stage, whatever the number of images; null: epochs count."
    )
    batch_size: int = Field(16, ge=2, description="Images per step. A last batch of one image joins the one before.")
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", description="Optimiser of the local loop.")
    lr: float = Field(5e-4, gt=0, description="Learning rate (paper: 5e-4).")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum; used by sgd only.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty (adamw: decoupled).")
    grad_clip: float | None = Field(10.0, gt=0, description="Largest gradient norm; null switches clipping off.")
    schedule: ScheduleSettings = Field(
        ScheduleSettings.model_validate({}), description="The learning rate from round to round."
    )
    warmup_steps: int = Field(
        0, ge=0, description="Steps at the start of each training over which the rate rises linearly; 0: none."
    )
    freeze: Literal["none", "backbone"] = Field(
        "none",
        description="backbone: only the head trains; the image encoder stays as it starts, BatchNorm statistics "
        "included, and is sent to a client once. For a pretrained one. A plain classifier without augmentation then "
        "computes the encoder's vectors of a client's images once.",
    )
    group_lr: GroupRates = Field(GroupRates.model_validate({}), description="Learning rates of the network's parts.")
    sampling: Literal["shuffle", "balanced"] = Field(
        "shuffle",
        description="shuffle: every image once an epoch; balanced: as many images, drawn with replacement so that rare "
        "labels come as often as frequent ones.",
    )
    flip: bool = Field(False, description="Random horizontal flips. Leave off where left and right are labels.")
    shift: int = Field(0, ge=0, description="Random shift of up to this many pixels, edges repeated.")
    augment: AugmentSettings = Field(
        AugmentSettings.model_validate({}), description="Further random changes of the training images."
    )

    @model_validator(mode="after")
    def _momentum_needs_sgd(self) -> Self:
        if self.optimizer != "sgd":
            self.refuse_changed(("momentum",), f"it is for optimizer sgd, and optimizer is {self.optimizer}")
        return self

    @model_validator(mode="after")
    def _frozen_parts_have_no_rate(self) -> Self:
        if self.freeze == "backbone" and self.group_lr.differ:
            raise ValueError(
                f"group_lr gives the backbone the factor {self.group_lr.backbone:g}, but freeze is backbone; set "
                "group_lr.backbone and group_lr.head to the same, or freeze to none"
            )
        return self

    @property
    def augments(self) -> bool:
        """Return whether training images are changed at random."""
        return self.flip or self.shift > 0 or self.augment.changes

    @model_validator(mode="after")
    def _one_shift(self) -> Self:
        if self.shift and self.augment.crop == "pad":
            raise ValueError(f"shift {self.shift} and augment.crop pad both move the image; set one of them")
        return self
