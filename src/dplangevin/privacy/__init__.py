"""What is promised: guarantees, the theorems that carry them, and calibration."""
