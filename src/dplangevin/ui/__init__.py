"""A page in the browser, on the user's own machine: from a table on disk to a published private model."""
