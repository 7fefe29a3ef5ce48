"""What a measurement is: check, time, failure kinds, runner processes, races and what
they prove. No TVM, no cluster."""
