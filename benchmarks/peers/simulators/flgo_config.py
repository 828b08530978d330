"""The data and the model of the work, as FLGo wants a benchmark of one's own described."""

import torch
from work import Data, model

data = Data()
train_data = torch.utils.data.TensorDataset(*data.everything())
test_data = torch.utils.data.TensorDataset(*data.test())


def get_model() -> torch.nn.Module:
    return model()
