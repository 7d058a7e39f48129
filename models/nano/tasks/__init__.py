"""Generated conversations with known answers, one module a family. Pure standard library: eval.py uses them too."""
