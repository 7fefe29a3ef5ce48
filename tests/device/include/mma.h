/* All of it is in emulated.h, which every source includes first. */
