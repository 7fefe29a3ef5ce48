"""What a folder of the benchmark carries: its second half, without the tuner."""
