/* What a call returns, and the text of the calling thread's last error. */
#ifndef TUNER_ERROR_H
#define TUNER_ERROR_H

#define TUNER_HIDDEN __attribute__((visibility("hidden")))
#define TUNER_EXPORT __attribute__((visibility("default")))

/* What a call returns. The numbers are part of the ABI. */
enum tuner_status {
  TUNER_OK = 0,
  TUNER_ERROR_NULL = 1,
  TUNER_ERROR_ALIGNMENT = 2,
  TUNER_ERROR_OVERLAP = 3,
  TUNER_ERROR_EXTENT = 4,
  TUNER_ERROR_ISA = 5,
  TUNER_ERROR_MEMORY = 6,
  TUNER_ERROR_INTERNAL = 7,
  TUNER_ERROR_VALUE = 9, /* 8 is the driver of a GPU */
};

/* Calling thread's last error text; empty before the first error; valid until its next error. */
TUNER_HIDDEN const char *tuner_last_error(void);
TUNER_HIDDEN int tuner_last_status(void);
TUNER_HIDDEN int tuner_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Forgets the last status, so that code that fails without one can be told apart. */
TUNER_HIDDEN void tuner_clear_status(void);

#endif
