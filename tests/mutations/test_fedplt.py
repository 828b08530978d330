"""Wrong masks and a wrong ψ fail the study `fedplt`."""

import pytest
from tests.mutations.conftest import Judge

from muster.common.masks.coordinates import Coordinates
from muster.server.aggregators.fedplt import FedPlt
from muster.studies import Claim, StudyRun
from muster.studies.fedplt.fleet import NO_MASK, STATIC

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def of_psi(run: StudyRun) -> bool:
    return run.part == "psi"


def of_masks(run: StudyRun) -> bool:
    return run.part in ("curvature", "limit") and run.labels["masks"] != NO_MASK


def held(claims: dict[str, Claim], *starts: str) -> dict[str, bool]:
    """Whether each claim that begins so holds; all of them must have been measured."""
    chosen = {text: claim for text, claim in claims.items() if text.startswith(starts)}
    assert chosen
    assert not [text for text, claim in chosen.items() if isinstance(claim.measured, str)]
    return {text: claim.holds for text, claim in chosen.items()}


WITH_PSI = "psi: with ψ, masks of"
ROTATE = "curvature: with rotating masks", "limit: rotating masks"
STATIC_LEAD = "limit: static masks"


def test_without_a_defect_the_claims_hold(judged: Judge) -> None:
    assert all(held(judged("fedplt", of_psi), WITH_PSI).values())
    assert all(held(judged("fedplt", of_masks), *ROTATE, STATIC_LEAD).values())


def test_a_server_that_leaves_out_psi_fails(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedPlt, "compensates", lambda rule: False)
    assert not any(held(judged("fedplt", of_psi), WITH_PSI).values())


def test_masks_that_do_not_rotate_fail(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Coordinates.maker

    def still(masking: Coordinates, *given: object) -> object:
        return whole(masking.model_copy(update={"schedule": STATIC}), *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Coordinates, "maker", still)
    found = held(judged("fedplt", of_masks), *ROTATE, STATIC_LEAD)
    assert [text for text, holds in found.items() if holds] == [
        text for text in found if text.startswith(STATIC_LEAD)
    ]
