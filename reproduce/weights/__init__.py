"""Weights by semantic neighbourhoods: `report` describes them, `gain` measures their effect, `tune` their ratio."""
