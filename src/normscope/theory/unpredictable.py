"""What theory says of a formula that it does not follow."""


class Unpredictable(ValueError):
    """A placement has no prediction in this setting; the message says why. Nothing is wrong with the setting."""
