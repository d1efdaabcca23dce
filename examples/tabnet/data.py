"""Serve scikit-learn's bundled digits, split the same way every time."""

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

TRAIN_ROWS = 1437  # of 1797, four fifths
LARGEST_PIXEL = 16.0

DigitsSplit = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]


def load_digits_split() -> DigitsSplit:
    """`(train_x, train_y, valid_x, valid_y)`: the first 1437 rows and the remaining 360.

    Pixels lie in [0, 1], 64 to a row. No download: the digits come with scikit-learn.
    """
    pixels, classes = load_digits(return_X_y=True)
    x = (pixels / LARGEST_PIXEL).astype(np.float32)
    y = classes.astype(np.int64)
    return x[:TRAIN_ROWS], y[:TRAIN_ROWS], x[TRAIN_ROWS:], y[TRAIN_ROWS:]


def updates_per_epoch(batch_size: int) -> int:
    """How many full batches the training rows give; the incomplete last one is dropped."""
    return TRAIN_ROWS // batch_size


class DigitsData(LightningDataModule):
    """The digits in batches: shuffled full ones for training, all rows in order for validation."""

    def __init__(self, batch_size: int = 128) -> None:
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage: str) -> None:
        """Build both data sets."""
        train_x, train_y, valid_x, valid_y = map(torch.from_numpy, load_digits_split())
        self.train_set = TensorDataset(train_x, train_y)
        self.valid_set = TensorDataset(valid_x, valid_y)

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        """Shuffled by torch's global generator."""
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        """In the rows' own order."""
        return DataLoader(self.valid_set, batch_size=self.batch_size)
