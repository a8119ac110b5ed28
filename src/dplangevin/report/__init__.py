"""Faces of a guarantee: text, JSON and pictures. Nothing here proves anything."""
