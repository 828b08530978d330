"""Lets the torchvision of PyPI be imported beside a torch for processors.

On Linux it is built for CUDA, and without CUDA its library cannot be loaded. Its import then fails,
because it describes two operators that are not there. Simulators import it for data sets that the
work does not use. Import this module first.
"""

import torch

if torch.version.cuda is None:
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        signature = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(signature)  # type: ignore[no-untyped-call]
