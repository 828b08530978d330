"""Lets the torchvision of PyPI be imported beside a torch for processors.

On Linux it is built for CUDA, its library cannot be loaded without, and then the import fails,
because it describes two operators that are not there. Simulators import it for data sets that the
work does not use. Import this module first.
"""

import torch

library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
