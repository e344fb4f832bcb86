"""Models of packages on PyPI that nobody prepared: tried as a new user would, and what came of it as a table."""
