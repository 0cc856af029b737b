"""Recipes: models build a Setup, methods change one."""
