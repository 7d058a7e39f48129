"""The author of the exam: neither training nor the choice between trainings reads these questions.

Each wording, passage, tool and list of values is this folder's own; of the rest of the package only the graders are used. The texts
are in *.txt, each of which slots.py reads: `{name:kind argument}` draws a value, `{name}` repeats it, `[...]` may be left out.
"""
