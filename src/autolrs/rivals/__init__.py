"""Rival schedules and methods, one idea per file; each is measured by `autolrs.bench` on the same tasks as ours."""
