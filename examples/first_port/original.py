"""The training to be reproduced, as its authors might have published it: one plain loop."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 4, 128


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))


def make_loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    return DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)


def train() -> nn.Sequential:
    """Train for `EPOCHS` epochs and return the network."""
    network, loader = make_network(), make_loader()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.03, total_steps=EPOCHS * len(loader)
    )
    for _ in range(EPOCHS):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
            schedule.step()
    return network
