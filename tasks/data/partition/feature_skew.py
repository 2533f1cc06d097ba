"""Feature skew of each client: sampled here, applied by ``tasks.client.feature_skew``."""

from tasks.core.randomness import numpy_generator
from tasks.data.partition.settings import FeatureSettings

# Largest change at strength 1: factors 1 +- x, hue as a part of the colour circle, blur as a part of the side.
_MAX_CHANGE = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.04, "blur": 0.02, "rotation": 15.0}


def client_features(settings: FeatureSettings, ids: list[str], seed: int) -> dict[str, dict[str, float]]:
    """Sample the parameters of each client's feature skew; none for kind ``none``.

    ``noise``: ``sigma`` of client i of N is strength * i/N (Li et al. 2022, NIID-Bench), white being 1; with
    ``clean_first`` strength * (i-1)/(N-1), as in that benchmark's code; ``same`` is 1 if all colour channels have the
    same noise.
    ``transform``: factors ``brightness``, ``contrast`` and ``saturation``, shift of ``hue`` as a part of the circle,
    standard deviation of ``blur`` as a part of the image's side, ``rotation`` in degrees. Uniform, from a generator
    per client, so that adding or removing a client changes no other.
    """
    if settings.kind == "none":
        return {}
    if settings.kind == "noise":
        steps, first = (max(len(ids) - 1, 1), 0) if settings.clean_first else (len(ids), 1)
        same = {"same": 1.0} if settings.channels == "same" else {}
        return {
            client: {"sigma": settings.strength * (i + first) / steps} | same for i, client in enumerate(sorted(ids))
        }
    parameters = {}
    for client in sorted(ids):
        rng = numpy_generator(seed, "partition/features", client=client)
        change = {name: float(rng.uniform(-1, 1)) * most * settings.strength for name, most in _MAX_CHANGE.items()}
        factors = {name: 1 + change[name] for name in ("brightness", "contrast", "saturation")}
        parameters[client] = change | factors | {"blur": abs(change["blur"])}
    return parameters
