"""The promises of noisy answers."""
