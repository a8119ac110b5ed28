"""One folder an algorithm: its schedule, theorems, mechanism and recipe. `privacy.registry` lists them."""
