"""A vision Transformer, tiny and written by hand, on the digits of scikit-learn."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Subset, TensorDataset

WIDTH, HEADS = 32, 4
images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
patches = images.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4).float() / 16
digits = TensorDataset(patches, labels)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def attention(self, x):
        query, key, value = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(
            functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(16, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, patches):
        x = self.embed(patches) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def build():
    return ViT()


def batches():
    return DataLoader(Subset(digits, range(1400)), batch_size=64, shuffle=True)


def validation():
    return DataLoader(Subset(digits, range(1400, len(digits))), batch_size=64)
