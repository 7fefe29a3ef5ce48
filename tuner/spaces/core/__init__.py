"""What every target's space is made of: knobs with finite values, sketches that declare
them, the space they span."""
