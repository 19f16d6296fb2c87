"""What the tests of scikit-learn's conventions share."""


def is_on_read_only(check):
    """Whether a check is another one once more, on data that lie in a read-only file."""
    return bool(check.keywords.get("readonly_memmap"))
