"""Fabricated rounds for the tests of tracking and report: plausible numbers, determined by round and client."""

import json
from pathlib import Path

import numpy as np

from tasks.core.records import Dropped, ModelRef, RoundRecord, RoundState, StageLog, Update
from tasks.core.round_state import GLOBAL, cluster_model

CLASSES = ["crane", "drone", "insulator", "pylon", "rust", "vegetation", "vehicle", "wire"]
CLIENTS = [f"client-{number:02d}" for number in range(10)]


def fabricated_record(number: int, classes: list[str] = CLASSES, clients: list[str] = CLIENTS) -> RoundRecord:
    """Return a round of FMMAN; every third round has a dropped client."""
    rng = np.random.default_rng(number)
    rise = 1 - np.exp(-number / 6)
    lost = [clients[3]] if number % 3 == 0 else []
    completed = [client for client in clients if client not in lost]
    prevalence = np.linspace(0.5, 0.06, len(classes))
    ap = np.clip(prevalence + (0.9 - prevalence) * rise * rng.uniform(0.7, 1, len(classes)), 0, 1)
    stages = ["train", "cluster", "refine", "average"]
    updates = {
        stage: [
            Update(
                client,
                ModelRef(f"updates/{client}.safetensors", "0" * 64, 400_000),
                samples=50 + index,
                steps=12,
                sums={"classification": ((1.2 - 0.8 * rise + 0.02 * index) * 50, 50.0), "graph": (5.0, 50.0)},
                seconds=1.5,
            )
            for index, client in enumerate(completed)
        ]
        for stage in (1, 3)
    }
    macro, folder = float(ap.mean()), f"rounds/{number:04d}"
    return RoundRecord(
        round=number,
        state=RoundState(
            models={GLOBAL: ModelRef(f"{folder}/model.safetensors", "1" * 64, 400_000)}
            | {
                cluster_model(k): ModelRef(f"{folder}/model-cluster-{k}.safetensors", "2" * 64, 400_000)
                for k in range(2)
            },
            cluster_of={client: (index + (number == 2)) % 3 for index, client in enumerate(completed)},
        ),
        participants=clients,
        updates=updates,
        dropped=[Dropped(client, 1, "no answer in 3600 s") for client in lost],
        stages=[
            StageLog(
                name,
                seconds=4.0 + i,
                bytes_down=4_000_000 * (i % 2 == 0),
                bytes_down_naive=5_000_000,
                bytes_up=400_000 * len(completed) * (i % 2 == 0),
                clients=len(completed),
            )
            for i, name in enumerate(stages)
        ],
        weights={client: 1 / len(completed) for client in completed},
        metrics={
            "macro_ap": macro,
            "micro_ap": macro + 0.05,
            "macro_precision": macro - 0.03,
            "macro_recall": macro - 0.1,
            "cf1": macro - 0.06,
            "mean_f1": macro - 0.08,
            "micro_precision": macro,
            "micro_recall": macro - 0.05,
            "micro_f1": macro - 0.02,
            "loss": 1.3 - rise,
            "mean_prevalence": float(prevalence.mean()),
            "classes_used": float(len(classes)),
            "images": 400.0,
        },
        per_class={
            name: {
                "ap": float(a),
                "precision": float(a),
                "recall": float(a) * 0.8,
                "f1": float(a) * 0.9,
                "support": float(round(400 * p)),
                "prevalence": float(p),
            }
            for name, a, p in zip(classes, ap, prevalence, strict=True)
        },
        per_site={
            site: {
                "macro_ap": macro + shift,
                "micro_ap": macro + shift,
                "cf1": macro - 0.1 + shift,
                "images": 100.0,
                "classes_used": 8.0,
            }
            for site, shift in (("harbour", 0.02), ("north", -0.05), ("valley", 0.01))
        },
        notes=["client-03 left out" for _ in lost],
    )


def fabricated_run(root: Path, rounds: int) -> list[RoundRecord]:
    """Write a run folder with finished rounds; the weights are a few bytes."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "settings.json").write_text(
        json.dumps(
            {
                "federate": {"method": "fmman", "rounds": rounds, "clients": {"fraction": 1.0}},
                "train": {"lr": 0.01, "batch_size": 16},
                "tracking": {"uri": None},
            }
        )
    )
    (root / "run.json").write_text(
        json.dumps({"run_id": "fmman-seed1", "seed": 1, "classes": CLASSES, "data_version": "abc123"})
    )
    records = [fabricated_record(number) for number in range(1, rounds + 1)]
    for record in records:
        folder = root / "rounds" / f"{record.round:04d}"
        folder.mkdir(parents=True)
        (folder / "round.json").write_text(json.dumps(record.as_dict()))
        for name in ("model", "model-cluster-0", "model-cluster-1"):
            (folder / f"{name}.safetensors").write_bytes(b"weights")
    return records
