"""Measuring: tasks, methods and overhead. Running and scoring are separate programs."""
