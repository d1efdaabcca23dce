"""Train the finished port by itself and record it: `python -m examples.first_port.train`."""

import sys

from lightning.pytorch import seed_everything

import traingen
from examples.first_port.package import third_try


def main(path: str = "out/first_port/run") -> None:
    seed_everything(0)
    fit = third_try()
    fit.trainer.callbacks += [traingen.StepRecorder(path, overwrite=True), traingen.CadenceGuard()]
    fit.trainer.fit(fit.model, fit.train_dataloaders)


if __name__ == "__main__":
    main(*sys.argv[1:])
