/* The calibration kernel: the same arithmetic each time. */
#ifndef TUNER_AGENT_PACE_H
#define TUNER_AGENT_PACE_H

double now_s(void);

/* Seconds of the kernel on the warm core this runs on: the median of a few calls. */
double pace_s(void);

#endif
