"""Flower's client: a module of its own, so that an actor imports it once and keeps the images and the network."""

from functools import lru_cache
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.training.job import Job

app = ClientApp()


@lru_cache(maxsize=1)
def resident(folder: str) -> tuple[Job, torch.nn.Module]:
    """Return the job and its network."""
    torch.set_num_threads(1)
    job = Job(Path(folder))
    return job, job.network()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the client that the server named from the weights that it sent."""
    del context
    config = message.content["config"]
    job, model = resident(str(config["job"]))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=True)
    client = str(config["client"])
    job.train(model, int(config["server-round"]), client)
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(job.rows[client])}),
    }
    return Message(content=RecordDict(content), reply_to=message)
