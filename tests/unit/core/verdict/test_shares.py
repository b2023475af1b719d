import math

import pytest

from core.verdict.betting import ALPHA, share, spent
from core.verdict.samples import SampleError


def test_the_shares_of_all_looks_stay_within_the_error() -> None:
    shares = [share(look) for look in range(1, 10_001)]
    assert math.fsum(shares) == pytest.approx(spent(10_000))
    assert 0.999 * ALPHA < spent(10_000) < ALPHA
    assert shares == sorted(shares, reverse=True)


def test_spent_is_the_sum_of_the_shares() -> None:
    assert spent(0) == 0.0
    assert spent(3, 0.1) == pytest.approx(share(1, 0.1) + share(2, 0.1) + share(3, 0.1))


def test_looks_count_from_one() -> None:
    with pytest.raises(SampleError) as caught:
        share(0)
    assert caught.value.where == "look"
