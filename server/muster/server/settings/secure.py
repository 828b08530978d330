"""The [server.secure] table of a scenario."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from muster.common.config import Section


class Secure(Section):
    """Secure aggregation: the server gets the weighted sum of the updates of a round, and no
    update.

    Bonawitz and others, Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS
    2017. https://eprint.iacr.org/2017/281. With many devices on the sparse graph of Bell and
    others, Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020.
    https://eprint.iacr.org/2020/704
    """

    drop_out: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """The largest share of the devices of a round that may drop out between the beginning and the
    end of a sum. If more do, the round is empty."""

    collusion: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    """The largest share of the devices of a round that may tell the server all that they know."""

    keep_sums: bool = False
    """Whether the server writes down the sum of every round, so that `muster audit` can make every
    version again: 16 bytes for each parameter and round."""

    @model_validator(mode="after")
    def _half_stays_honest(self) -> Self:
        if 2 * self.drop_out + self.collusion >= 1:
            raise ValueError(
                f"drop_out = {self.drop_out:g} and collusion = {self.collusion:g}: no threshold "
                f"both opens a sum and keeps updates secret; expected 2 · drop_out + collusion "
                f"below 1"
            )
        return self
