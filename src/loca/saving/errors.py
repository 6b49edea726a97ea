"""What can be wrong with a model file."""


class ModelFileError(ValueError):
    """A file that is not a whole and sound model file, or a model that cannot be put into one."""


def shown(text: object) -> str:
    """Something a file says, fit for a message: quoted, without control characters, and never long."""
    quoted = ascii(text)
    return quoted if len(quoted) <= 80 else f"{quoted[:77]}..."
