"""Write what ``fedscene run`` is going to train on for the other contestants: ``python -m benchmarks.training.export``.

Images, first weights, each round's clients and the order of each client's images are those of the run, so that all
contestants compute the same and their losses can be compared.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def export(overrides: list[str], folder: Path) -> dict[str, Any]:
    """Prepare the data of these settings, and write the job into ``folder``; return its facts."""
    from safetensors.torch import save_file

    from flows.engine import environment

    environment.prepare()
    from flows.run.prepare_data import prepare_data
    from flows.settings.files import load_settings
    from models.build import new_model
    from models.registry import ModelSpec
    from tasks.core.randomness import derive_seed, numpy_generator
    from tasks.data.clients import load_clients
    from tasks.data.dataset import load_dataset
    from tasks.data.ingest.dataset_kind import dataset_kind

    settings = load_settings(None, (), overrides)
    paths = prepare_data(settings)
    dataset, clients = load_dataset(paths.dataset), load_clients(paths.clients)
    seed, train = settings.seed, settings.train
    rows = {client: clients.rows(client) for client in sorted(clients.ids)}
    rounds = range(1, settings.federation.rounds + 1)
    plan, orders = {}, {}
    for round_ in rounds:
        ids, count = sorted(rows), settings.federation.clients_per_round
        if count is not None and count < len(ids):
            generator = numpy_generator(seed, "sample clients", round_)
            ids = sorted(generator.choice(ids, size=count, replace=False).tolist())
        plan[round_] = ids
        for client in ids:
            generator = numpy_generator(seed, "batch order", round_=round_, stage=1, client=client)
            orders[f"{round_}/{client}"] = np.stack(
                [generator.permutation(len(rows[client])) for _ in range(train.epochs)]
            )
    folder.mkdir(parents=True, exist_ok=True)
    spec = ModelSpec(tuple(dataset.classes), settings.ingest.image_size)
    model = new_model(settings.model, spec, derive_seed(seed, "initial model"))
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "initial.safetensors")
    np.save(folder / "images.npy", np.asarray(dataset.images))
    np.save(folder / "targets.npy", dataset.targets)
    np.savez(folder / "orders.npz", **orders)
    facts = {
        "model": settings.model.model_dump(mode="json"),
        "classes": dataset.classes,
        "image_size": settings.ingest.image_size,
        "kind": dataset_kind(dataset.root),
        "batch_size": train.batch_size,
        "lr": train.lr,
        "plan": plan,
        "rows": {client: values.tolist() for client, values in rows.items()},
        "test_rows": dataset.indices("test").tolist(),
        "parameters": sum(value.numel() for value in model.parameters()),
    }
    (folder / "job.json").write_text(json.dumps(facts))
    return facts


if __name__ == "__main__":
    export(sys.argv[2:], Path(sys.argv[1]))
