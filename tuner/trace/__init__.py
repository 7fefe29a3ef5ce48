"""What a program calls: recorded while it runs, read, and turned into workloads."""
