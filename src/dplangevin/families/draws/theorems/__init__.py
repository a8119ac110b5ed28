"""The promises of exact and certified draws."""
