"""The one error for bad input: its message is a single sentence that a user can act on."""


class InputError(ValueError):
    """What was given cannot be used; the message names what is accepted."""
