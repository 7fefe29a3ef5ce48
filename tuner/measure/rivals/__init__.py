"""Libraries that users would pick instead, as contenders of a race."""
