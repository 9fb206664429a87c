"""The pure heart of autolrs: numpy and scipy only; no clock, no files, no global random state."""
