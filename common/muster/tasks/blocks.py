"""Modules that torch does not have. Importing this module imports torch, so models import it only
when they are built."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution if shapes change."""

    def __init__(self, before: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, width)
        self.convolution2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != width:
            self.shortcut = nn.Conv2d(before, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = relu(self.norm1(self.convolution1(x)))
        return relu(self.norm2(self.convolution2(hidden)) + self.shortcut(x))


class Reader(nn.Module):
    """An embedding, an LSTM, and a linear layer on the pooled states of the LSTM."""

    def __init__(
        self,
        vocabulary: int,
        embedding: int,
        hidden: int,
        layers: int,
        bidirectional: bool,
        pooling: str,
        outputs: int,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(
            embedding, hidden, layers, batch_first=True, bidirectional=bidirectional
        )
        self.directions = 2 if bidirectional else 1
        self.output = nn.Linear(self.directions * hidden, outputs)
        self.pooling = pooling

    def forward(self, x: Tensor) -> Tensor:
        states, (last, _) = self.lstm(self.embedding(x))  # (batch, tokens, directions · hidden)
        if self.pooling == "max":
            said = states.amax(dim=1)
        elif self.pooling == "mean":
            said = states.mean(dim=1)
        else:  # the states in which each direction of the top layer has read the whole text
            said = torch.cat(tuple(last[-self.directions :]), dim=1)
        return self.output(said)  # type: ignore[no-any-return]
