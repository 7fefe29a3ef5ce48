/* The status and text of the calling thread's last error. */
#include "error.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

static __thread char error_text[1024];
static __thread int error_status;

const char *tuner_last_error(void) { return error_text; }

int tuner_last_status(void) { return error_status; }

void tuner_clear_status(void) { error_status = TUNER_OK; }

int tuner_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  error_status = status;
  return status;
}

/* Called by generated code before it returns -1: an argument is not what it was compiled for, or an assertion in it failed. */
TUNER_HIDDEN void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  size_t used = (size_t)snprintf(error_text, sizeof error_text, "%s: ", kind);
  for (int32_t i = 0; i < count && used < sizeof error_text - 1; ++i) {
    if (parts[i] != NULL) {
      int written = snprintf(error_text + used, sizeof error_text - used, "%s", parts[i]);
      used += written > 0 ? (size_t)written : 0;
    }
  }
  error_status = TUNER_ERROR_INTERNAL;
}
