"""Published results, one per file; `privacy.registry` lists those on offer."""
