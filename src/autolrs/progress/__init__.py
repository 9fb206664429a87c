"""What a run is doing now: `words` puts events into lines, `panel` draws in a terminal, `views` watch a session."""
