"""Functions that drive one program of Python each, run inside of that program's own environment."""
