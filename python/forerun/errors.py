"""What forerun raises. Each message says what to do."""


class ForerunError(Exception):
    """Any error of forerun."""


class FetchError(ForerunError, OSError):
    """The storage did not give the bytes: `errno` says why, as far as it has a number."""


class OptionError(ForerunError, ValueError):
    """What was asked for cannot be: a policy, a parameter or a size."""
