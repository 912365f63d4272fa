"""The one error for bad input, and what any error says: a single sentence that a user can act on."""

ADVICE = "make room there or make it writable, or name other folders in ABC_NB_RUNS and ABC_NB_FIGURES"


class InputError(ValueError):
    """What was given cannot be used; the message names what is accepted."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback: the sentence alone."""
        return [f"InputError: {self}"]


def reason(error: BaseException) -> str:
    """An error as one sentence: what was wrong, or what the system did not allow and what to do about it."""
    if not isinstance(error, OSError):
        return str(error) or type(error).__name__
    if error.filename is None:
        return error.strerror or str(error)
    return f"cannot use {error.filename}: {error.strerror}; {ADVICE}, and the same command goes on"
