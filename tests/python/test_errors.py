"""Errors can be caught as forerun's and as what Python calls them."""

import errno

import pytest

import forerun


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(forerun.FetchError, OSError), (forerun.OptionError, ValueError)],
)
def test_an_error_has_two_names(error: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(error, forerun.ForerunError)
    assert issubclass(error, builtin)


def test_a_fetch_error_keeps_its_number() -> None:
    error = forerun.FetchError(errno.EIO, "read it again")
    assert error.errno == errno.EIO
    assert str(error).endswith("read it again")


def test_the_extension_raises_them() -> None:
    with pytest.raises(forerun.OptionError, match="there are: .*streams"):
        forerun.vectors.decisions("no-such", [])
