"""What a model's outputs are held against, and how far from it they may be."""
