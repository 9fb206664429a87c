"""What a run looks like: `info` gathers the data from its events, `plots` draws them."""
