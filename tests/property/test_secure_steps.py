"""Steps of secure sums come back from their bytes, and other bytes are refused."""

from hypothesis import given
from hypothesis import strategies as st

from muster.common.errors import RemoteProtocolError
from muster.common.secure.steps import KEYS_BYTES, SEALED_BYTES, StepRequest, SumStep, decode_step

RECORD_BYTES = {
    SumStep.KEYS: 0,
    SumStep.SHARES: KEYS_BYTES,
    SumStep.UPDATE: SEALED_BYTES,
    SumStep.OPENING: 1,
}
INDICES = st.integers(0, 2**32 - 1)


@given(
    st.sampled_from(SumStep),
    st.binary(min_size=16, max_size=16),
    st.lists(INDICES, min_size=1, max_size=6, unique=True),
    INDICES,
)
def test_a_step_comes_back(
    step: SumStep, attempt: bytes, devices: list[int], threshold: int
) -> None:
    device, *others = devices
    record = bytes(RECORD_BYTES[step])
    request = StepRequest(step, attempt, device, threshold, [(index, record) for index in others])
    assert decode_step(request.encoded()) == request


@given(st.binary(max_size=300))
def test_any_bytes_are_a_step_or_refused(data: bytes) -> None:
    try:
        request = decode_step(data)
    except RemoteProtocolError:
        return
    assert request.encoded() == data
