"""The author whose questions choose between trainings: training never reads them."""
