"""Public model definitions, each with made-up examples of the shape that it takes.

`make_task` is the task of a scenario: its setting `entry` is a name of `ZOO`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from muster.common.seeds import stream
from muster.tasks.models import seeded
from muster.tasks.task import Examples, OpenTask

LABELS = 4
EXAMPLES = 12

# The package index has torchvision compiled for another build of torch than the one for CPUs. Its
# models need no compiled operator, but its import looks for two.
_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    with suppress(RuntimeError):
        _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@dataclass(frozen=True)
class Entry:
    """A model, and what it reads.

    Attributes:
        shape: of one input.
        vocabulary: the number of tokens, if inputs are tokens.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    vocabulary: int | None = None


def resnet18() -> nn.Module:
    from torchvision.models import resnet18

    return resnet18(num_classes=LABELS)


def mobilenet_v3() -> nn.Module:
    from torchvision.models import mobilenet_v3_small

    return mobilenet_v3_small(num_classes=LABELS)


def timm_vit() -> nn.Module:
    import timm

    return timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=LABELS)


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 16}
    return GPT2ForSequenceClassification(
        GPT2Config(vocab_size=50, num_labels=LABELS, pad_token_id=0, **sizes)
    )


class Logits(nn.Module):
    """The scores of a model that returns more than them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.model(x).logits)


def gpt() -> nn.Module:
    return Logits(_gpt2())


def lora() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    return Logits(get_peft_model(_gpt2(), LoraConfig(task_type="SEQ_CLS", r=4)))


def bert() -> nn.Module:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    config = AutoConfig.for_model(
        "bert", vocab_size=50, num_attention_heads=2, num_labels=LABELS, **sizes
    )
    return Logits(AutoModelForSequenceClassification.from_config(config))


class PackedLstm(nn.Module):
    """An LSTM over sequences of different lengths; 0 is no token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.output = nn.Linear(16, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x != 0).sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(x), lengths, batch_first=True, enforce_sorted=False
        )
        return torch.as_tensor(self.output(self.lstm(packed)[1][0][-1]))


class Unet(nn.Module):
    """A small U-Net: batch normalisation, a skip, a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.head = nn.Conv2d(16, LABELS, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        mask = self.head(torch.cat([skip, self.up(self.middle(skip))], dim=1))
        return torch.as_tensor(mask.mean((2, 3)))


class Graph(nn.Module):
    """Two graph convolutions over a ring of nodes; an input has the features of all nodes."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import BatchNorm, GCNConv

        self.first, self.second = GCNConv(3, 8), GCNConv(8, LABELS)
        self.norm = BatchNorm(8)
        nodes = torch.arange(6)
        self.register_buffer("edges", torch.stack([nodes, nodes.roll(1)]))

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        offsets = 6 * torch.arange(count).repeat_interleave(6)
        edges = self.edges.repeat(1, count) + offsets
        hidden = self.norm(self.first(x.reshape(-1, 3), edges)).relu()
        return torch.as_tensor(self.second(hidden, edges).view(count, 6, -1).mean(1))


def lightning_module() -> nn.Module:
    import lightning

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8))
            self.head = nn.Linear(8, LABELS)

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.head(self.net(x)))

        def training_step(self, batch: Any, _: int) -> Tensor:
            return cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Lit()


ZOO: Mapping[str, Entry] = {
    "torchvision resnet18": Entry(resnet18, (3, 32, 32)),
    "torchvision mobilenet_v3_small": Entry(mobilenet_v3, (3, 32, 32)),
    "timm vit_tiny": Entry(timm_vit, (3, 32, 32)),
    "transformers gpt2": Entry(gpt, (8,), 50),
    "transformers bert, from a configuration": Entry(bert, (8,), 50),
    "peft LoRA on gpt2": Entry(lora, (8,), 50),
    "lstm with packed sequences": Entry(PackedLstm, (8,), 50),
    "u-net": Entry(Unet, (3, 16, 16)),
    "torch_geometric GCN": Entry(Graph, (6, 3)),
    "lightning module": Entry(lightning_module, (12,)),
}


class MadeUp(OpenTask):
    """Random examples, whose labels follow from the first entry of the input."""

    def __init__(self, entry: Entry, population: int, seed: int) -> None:
        self.examples = [EXAMPLES] * population
        self._entry, self._seed = entry, seed

    def _drawn(self, name: str | int, count: int) -> Examples:
        draws, shape = stream(self._seed, "zoo", name), (count, *self._entry.shape)
        x: npt.NDArray[Any]
        if self._entry.vocabulary is None:
            x = draws.standard_normal(shape, np.float32)
            return Examples(x, (x.reshape(count, -1)[:, 0] > 0).astype(np.int64))
        x = draws.integers(1, self._entry.vocabulary, shape)
        return Examples(x, x[:, 0] % LABELS)

    def client(self, index: int) -> Examples:
        return self._drawn(index, EXAMPLES)

    def test(self) -> Examples:
        return self._drawn("test", 20)

    def module(self) -> nn.Module:
        with seeded(self._seed, "model"):
            return self._entry.build()

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(outputs, y)


def make_task(population: int, seed: int, *, entry: str) -> OpenTask:
    return MadeUp(ZOO[entry], population, seed)
