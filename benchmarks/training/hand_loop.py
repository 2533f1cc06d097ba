"""FedAvg as a hand-written loop in one process: ``python -m benchmarks.training.hand_loop JOB [DEVICE PRECISION]``."""

import json
import sys
from pathlib import Path

import torch

from benchmarks.training.job import Job


def main(folder: Path, device: str = "cpu", precision: str = "fp32") -> None:
    """Train all rounds; print the loss."""
    torch.set_num_threads(1)
    job = Job(folder, device, precision == "bf16")
    model, state = job.network(), job.initial()
    for round_ in job.plan:
        mean = {name: torch.zeros_like(value) for name, value in state.items()}
        for client, weight in job.weights(round_).items():
            model.load_state_dict(state)
            job.train(model, round_, client)
            for name, value in model.state_dict().items():
                if value.is_floating_point():
                    mean[name] += weight * value
                else:  # BatchNorm's counter
                    mean[name] = torch.maximum(mean[name], value)
        state = mean
        if device != "cpu":
            torch.cuda.synchronize()
        print(f"round {round_} done", file=sys.stderr, flush=True)
    model.load_state_dict(state)
    print(json.dumps(job.score(model)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
