"""Recipes: hosts build a Setup, methods change one."""
