"""From a float network to one of 8-bit integers: calibration, losses, and the QDQ file."""
