"""The local steps of a round: how parameters move by the gradients of minibatches."""

import numpy as np
import torch
from torch import Tensor

from muster.client.training.settings import Training
from muster.common.masks import Mask
from muster.common.tensors import Vector


def clip(vector: Tensor, largest: float | None) -> None:
    """Scale `vector` in place to a norm of at most `largest`; None leaves it as it is."""
    if largest is None:
        return
    # In float32 the squares of entries above 2e19 overflow, and the vector would become 0.
    norm = torch.linalg.vector_norm(vector, dtype=torch.float64).item()
    if norm > largest:
        vector.mul_(largest / norm)


class Descent:
    """Local steps of one device, or of several devices at the same time.

    All parameters of a device are one flat tensor, so a step of plain SGD takes three calls however
    many tensors the model has.

    Attributes:
        theta: the parameters, float32, shape (parameters,), or (devices, parameters) for several
            devices. They begin as the received ones.
        gradient: the gradient for the next step, in the shape of `theta`. Whoever computes it adds
            to it; a step sets it to 0.

    Args:
        devices: the number of devices; None: one, without a dimension for devices.
        mask: the coordinates that are trained; None: all.
        received: shape (parameters,), or (devices, parameters) if the devices begin with different
            ones.
        correction: added to the gradient of every step after it was clipped, shape (parameters,).
        travels: how many of the parameters travel; those after them are local. None: all.
    """

    def __init__(
        self,
        received: Vector,
        settings: Training,
        round: int,
        ridge: float,
        device: torch.device,
        *,
        devices: int | None = None,
        mask: Mask | None = None,
        correction: Vector | None = None,
        travels: int | None = None,
    ) -> None:
        start = torch.from_numpy(received.astype(np.float32)).to(device)
        same = devices is not None and start.dim() == 1
        self.theta = start.repeat(devices or 0, 1) if same else start
        self.gradient = torch.zeros_like(self.theta)
        self._of_all = self.theta, self.gradient
        self._received = received[..., :travels]
        self._travels = travels
        self._settings = settings
        self._ridge = ridge
        self._rate = settings.learning_rate_at(round)
        self._steps = 0
        fixed = settings.proximal_mu or mask is not None
        self._start = start.clone() if fixed else None
        self._correction = None if correction is None else torch.from_numpy(correction).to(device)
        # Whether a coordinate is outside the mask.
        self._others = None if mask is None else torch.from_numpy(~mask.whole()).to(device)
        self._state = settings.optimizer.initial_state(self.theta)

    def keep(self, devices: int) -> None:
        """Let only the first devices take further steps; the others have finished."""
        self._finish(self.gradient[devices:])
        self.theta, self.gradient = self.theta[:devices], self.gradient[:devices]
        self._state = {name: value[:devices] for name, value in self._state.items()}

    def _finish(self, gradient: Tensor) -> None:
        if self._settings.gradient:
            gradient.div_(max(self._steps, 1))

    def penalty(self) -> float:
        """½ · ridge · ‖θ‖² of one device before the next step."""
        if not self._ridge:
            return 0.0
        norm: float = torch.linalg.vector_norm(self.theta).item()
        return 0.5 * self._ridge * norm**2

    def step(self) -> None:
        """Take a step by the gradients that were added since the last one."""
        self._steps += 1
        if self._ridge:
            self.gradient.add_(self.theta, alpha=self._ridge)
        if self._settings.gradient:
            return  # gradients of all steps, at the received parameters, add up
        theta, gradient, settings = self.theta, self.gradient, self._settings
        if self._start is not None and settings.proximal_mu:
            self._pull(theta, gradient, self._start, settings.proximal_mu)
        if self._others is not None:
            gradient.masked_fill_(self._others, 0.0)
        if settings.clip_norm is not None:
            for vector in _vectors(gradient):
                clip(vector, settings.clip_norm)
        if self._correction is not None:
            gradient.add_(self._correction)
        settings.optimizer.step(theta, gradient, self._state, rate=self._rate, number=self._steps)
        gradient.zero_()
        if settings.projection_radius is not None:
            for vector in _vectors(theta):
                self._project(vector, settings.projection_radius)
        if self._others is not None and self._start is not None:
            # Decoupled weight decay, projections, and optimizers of users also move entries without
            # a gradient.
            torch.where(self._others, self._start, theta, out=theta)

    def _pull(self, theta: Tensor, gradient: Tensor, start: Tensor, mu: float) -> None:
        """Add the gradient of the proximal term, which local parameters have not."""
        if start.dim() > 1:
            start = start[: len(theta)]
        away = (theta - start)[..., : self._travels]
        gradient[..., : self._travels].add_(away, alpha=mu)

    def _project(self, vector: Tensor, radius: float) -> None:
        """Scale the parameters of one device so that those that it trains have at most this
        norm."""
        trained = vector if self._others is None else vector.masked_fill(self._others, 0.0)
        norm = torch.linalg.vector_norm(trained).item()
        if norm > radius:
            vector.mul_(radius / norm)

    def local(self, place: int) -> Vector:
        """The local parameters of one of several devices after its steps, shape (local,)."""
        return self._of_all[0][place, self._travels :].cpu().numpy()

    def updates(self) -> Vector:
        """Return what the devices return after their steps: float32, in the shape that `theta` had
        at first, but of the parameters that travel alone."""
        self._finish(self.gradient)
        theta, gradient = (each[..., : self._travels] for each in self._of_all)
        if self._settings.gradient:
            updates = gradient.cpu().numpy()
        else:
            updates = theta.cpu().numpy() - self._received
        if self._others is not None:  # gradients, and infinities minus themselves
            updates[..., self._others.cpu().numpy()] = 0.0
        if self._settings.clip_update is not None:
            for vector in _vectors(torch.from_numpy(updates)):
                clip(vector, self._settings.clip_update)
        return updates


def _vectors(tensor: Tensor) -> Tensor | tuple[Tensor]:
    """The vectors of the devices."""
    return tensor if tensor.dim() > 1 else (tensor,)
