"""The promises of perturbed objectives and minimisers."""
