"""The checks of the verdict, one or two a file; `registry.py` names them and says in which process they run."""
