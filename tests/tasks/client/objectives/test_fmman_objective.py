"""FMMAN's local objective on a narrow network: the terms of eqs 8 and 10 to 12."""

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity

from models.errors import UserError
from models.layers.stochastic import use_generator
from tasks.client.objectives import LocalContext, load_objective
from tasks.client.objectives.label_mask.fmman import Settings, make, references_needed
from tasks.client.objectives.label_mask.fmman_losses import mean_pair_cosine
from tasks.client.objectives.label_mask.label_states import draw_known_states, mask_uncertain, related_labels
from tests.support.label_aware import CLASSES, data, generator, gradients, local_context, network, reference


def restated(model, references, settings, own=None):
    """The local step with loops, for a model in eval mode (no noise): the total loss of ``data()``."""
    images, targets = data()
    related = related_labels(model.label_embeddings, targets, settings.corr_rule, settings.corr_k, settings.corr_rho)
    band = settings.tau, settings.eps, settings.band
    base = draw_known_states(targets, generator(5), settings.known_share)
    tokens = model.encode_image(images)
    masks, features_z, parameters = [], [], []
    for entry in references:
        theirs = entry.model.encode_image(images)
        p = torch.sigmoid(entry.model.head(theirs, entry.model.unknown(3)).logits)
        states = mask_uncertain(base, p, related, *band)
        for _ in range(entry.multiplicity):
            masks.append(states)
            features_z.append(entry.model.head(theirs, states).z)
            parameters.append(dict(entry.model.named_parameters()))
    p = torch.sigmoid(model.head(tokens, model.unknown(3)).logits).detach()
    masks.append(mask_uncertain(base, p, related, *band))
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) > 1, "nothing is uncertain: the case shows nothing"
    total = 0.0
    for states in masks:
        out = model.head(tokens, states)
        for n in range(3):
            for c in range(CLASSES):
                if states[n, c] == -1:
                    total = total + binary_cross_entropy_with_logits(out.logits[n, c], targets[n, c].float()) / 3
            aim = out.masked_labels[n] if settings.ae_target == "masked_labels" else model.label_embeddings
            rec = sum((aim[c] - out.reconstruction[n, c]).square().sum() for c in range(CLASSES)) / CLASSES
            held = out.strength[n] if settings.ae_adj_target == "sim" else out.adjacency[n]
            con = 0.0
            for i in range(CLASSES):
                for j in range(CLASSES):
                    cosine = cosine_similarity(out.features[n, i], out.features[n, j], dim=0)
                    con = con + (cosine - held[i, j]).square() / CLASSES**2
            gaussian = torch.distributions.Normal(out.mean[n], out.deviation[n].abs().clamp(min=1e-6))
            kl = torch.distributions.kl_divergence(gaussian, torch.distributions.Normal(0.0, 1.0)).sum() / CLASSES
            total = total + (settings.w_rec * rec + settings.w_con * con + settings.w_kl * kl) / 3
    total = total / len(masks)
    for n in range(3):
        c = torch.stack([cosine_similarity(out.z[n], z[n], dim=0) for z in features_z])
        chosen = range(len(c)) if own is None else [own]
        scaled = c if own is None else c / settings.temperature
        total = total + settings.lambda_contrast * sum(scaled.logsumexp(0) - scaled[i] for i in chosen) / 3
    for theirs in parameters if own is None else [parameters[own]]:
        for name, value in model.named_parameters():
            total = total + settings.lambda_prox * (value - theirs[name]).square().sum()
    return total


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({}, None),
        ({"band": "closed", "w_kl": 0.1}, None),
        ({"ae_target": "label_embeddings", "ae_adj_target": "norm", "w_rec": 0.5, "w_con": 2.0}, None),
        ({"contrast_mode": "own_cluster", "prox": "own_cluster", "temperature": 0.3}, 1),
    ],
)
def test_the_whole_step_against_a_loop(options, own):
    settings = Settings(**{"eps": 0.1, "lambda_contrast": 0.3, "lambda_prox": 0.02, "corr_k": 1} | options)
    model, references = network(1).eval(), [reference(2), reference(3)]
    step = make(LocalContext(model, tuple(references), own, settings, generator(5), data()[1]))
    got, expected = step(*data()).total, restated(model, references, settings, own)
    assert got.item() == pytest.approx(expected.item(), rel=1e-5)
    ours, theirs = gradients(model, got), gradients(model, expected)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], rtol=1e-3, atol=1e-5), name


def test_a_reference_of_multiplicity_k_counts_k_times():
    settings = {"eps": 0.1, "lambda_contrast": 0.3, "lambda_prox": 0.02}
    model = network(1).eval()
    once = make(local_context(model, [reference(2, multiplicity=3)], **settings))(*data())
    thrice = make(local_context(model, [reference(2)] * 3, **settings))(*data())
    assert once.total.item() == pytest.approx(thrice.total.item(), rel=1e-6)
    for term, (total, weight) in once.sums.items():
        assert float(total) == pytest.approx(float(thrice.sums[term][0]), rel=1e-5)
        assert weight == thrice.sums[term][1]


def test_without_references_there_is_one_mask_and_no_eq11():
    out = make(local_context(network(1).eval()))(*data())
    assert set(out.sums) == {"classification", "autoencoder", "feature_cosine"}
    assert out.sums["autoencoder"][1] == out.sums["feature_cosine"][1] == 3
    total = sum(float(out.sums[t][0]) for t in ("classification", "autoencoder")) / 3
    assert out.total.item() == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize(("sources", "count"), [("all", 5), ("local", 1), ("global", 4)])
def test_mask_sources(sources, count):
    references = [reference(2), reference(3, multiplicity=3)]
    out = make(local_context(network(1).eval(), references, mask_sources=sources))(*data())
    assert out.sums["autoencoder"][1] == 3 * count
    assert out.sums["contrast"][1] == 3


def test_no_unknown_label_gives_zero_loss_and_finite_gradients():
    model = network(1).train()
    out = make(local_context(model, state_init="random01", use_uncertainty=False))(*data())
    assert [float(x) for x in out.sums["classification"]] == [0.0, 0.0]
    grads = gradients(model, out.total)
    assert all(torch.isfinite(g).all() for g in grads.values())
    assert grads["readout.weight"].abs().max() == 0


def test_equal_prototypes_add_no_gradient():
    model = network(1).eval()
    with_contrast, without = (
        make(local_context(model, [reference(2, multiplicity=3)], lambda_contrast=weight, prox="off"))(*data()).total
        for weight in (1.0, 0.0)
    )
    assert (with_contrast - without).item() == pytest.approx(3 * math.log(3), rel=1e-5)
    ours, theirs = gradients(model, with_contrast), gradients(model, without)
    assert max((ours[name] - theirs[name]).abs().max() for name in ours) < 1e-6


def test_one_prototype_has_a_contrastive_term_of_zero():
    out = make(local_context(network(1).eval(), [reference(2)], lambda_contrast=1.0))(*data())
    assert float(out.sums["contrast"][0]) == 0.0


def test_parameter_term_is_zero_at_the_start_of_stage_1():
    out = make(local_context(network(1).eval(), [reference(1, multiplicity=3)]))(*data())
    assert float(out.sums["distance"][0]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("own", [None, 0])
def test_own_cluster_counts_the_assigned_prototype_once_whatever_its_multiplicity(own):
    """``own_cluster`` keeps only the assigned cluster's prototype, counted once, not K times."""
    single = make(local_context(network(1).eval(), [reference(2)], own, prox="own_cluster"))(*data())
    multiplicity = make(local_context(network(1).eval(), [reference(2, multiplicity=3)], own, prox="own_cluster"))(
        *data()
    )
    assert float(multiplicity.sums["distance"][0]) == pytest.approx(float(single.sums["distance"][0]), rel=1e-6)


def test_the_embedding_is_z_under_the_last_mask_with_gradient():
    model, settings = network(1).eval(), Settings(eps=0.1)
    out = make(local_context(model, [reference(2)], eps=0.1))(*data())
    images, targets = data()
    base, tokens = draw_known_states(targets, generator(5), 0.75), model.encode_image(images)
    p = torch.sigmoid(model.head(tokens, model.unknown(3)).logits)
    states = mask_uncertain(
        base,
        p,
        related_labels(model.label_embeddings, targets, settings.corr_rule, settings.corr_k, settings.corr_rho),
        0.5,
        0.1,
    )
    assert torch.allclose(out.embedding, model.head(tokens, states).z, atol=1e-6) and out.embedding.requires_grad


def test_prototypes_are_unchanged():
    model, references = network(1).train(), [reference(2), reference(3, multiplicity=2)]
    before = [{name: value.clone() for name, value in g.model.state_dict().items()} for g in references]
    step = make(local_context(model, references, lambda_contrast=1.0, lambda_prox=1.0))
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimiser.zero_grad()
        step(*data()).total.backward()
        optimiser.step()
    for entry, old in zip(references, before, strict=True):
        assert not any(module.training for module in entry.model.modules())
        assert all(value.grad is None for value in entry.model.parameters())
        assert all(torch.equal(value, old[name]) for name, value in entry.model.state_dict().items())


def test_batchnorm_sees_each_batch_once():
    model = network(1).train()
    make(local_context(model, [reference(2)]))(*data())
    assert {int(v) for n, v in model.state_dict().items() if n.endswith("num_batches_tracked")} == {1}


def test_paper_sum_is_a_sum_over_images_masks_labels_and_pairs():
    model, weights = network(1).eval(), {"prox": "off", "lambda_contrast": 0.2}
    for option, scale in (({"w_rec": 0, "w_con": 1}, CLASSES**2), ({"w_rec": 1, "w_con": 0}, CLASSES)):
        mean, plain = (
            make(local_context(model, [reference(2)], loss_reduction=reduction, **weights, **option))(*data())
            for reduction in ("mean", "paper_sum")
        )
        parts = [float(mean.sums[t][0]) for t in ("classification", "autoencoder", "contrast")]
        assert plain.total.item() == pytest.approx(parts[0] + scale * parts[1] + 0.2 * parts[2], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({}, "all"),
        ({"lambda_contrast": 0, "lambda_prox": 0}, "all"),
        ({"lambda_contrast": 0, "lambda_prox": 0, "mask_sources": "local"}, "none"),
        ({"lambda_contrast": 0, "prox": "off", "use_uncertainty": False}, "none"),
        ({"lambda_contrast": 0, "use_uncertainty": False}, "all"),
        ({"lambda_contrast": 0, "use_uncertainty": False, "prox": "own_cluster"}, "own_cluster"),
        ({"lambda_contrast": 0, "prox": "own_cluster", "mask_sources": "local"}, "own_cluster"),
        ({"lambda_contrast": 0, "prox": "own_cluster"}, "all"),
        ({"prox": "off", "mask_sources": "local"}, "all"),
    ],
)
def test_which_references_are_needed(options, needed):
    assert references_needed(Settings(**options)) == needed


def test_another_network_is_refused():
    with pytest.raises(UserError, match=r"needs a network with label states(?s:.)*fmman or fedlgt"):
        make(local_context(network(1, name="resnet18")))
    with pytest.raises(UserError, match="no such objective"):
        load_objective("nothing")


@pytest.mark.parametrize("residual", [False, True])
def test_feature_cosine_is_measured_without_noise(residual):
    def cosine(model):
        step = make(local_context(model, use_uncertainty=False))
        total, weight = step(*data()).sums["feature_cosine"]
        return float(total) / weight

    model = network(1, gae_residual=residual)
    at_test = cosine(model.eval())
    for seed in (1, 2):  # in training the features themselves are drawn anew
        use_generator(model.train(), generator(seed))
        assert cosine(model) == pytest.approx(at_test, abs=1e-6)
    if residual:
        return
    states = torch.full((3, CLASSES), 1)
    noisy = model.head(model.encode_image(data()[0]), states).features
    calm = model.eval().head(model.encode_image(data()[0]), states).features
    assert (mean_pair_cosine(calm) - mean_pair_cosine(noisy)).mean() > 0.1  # what the figure left out
