/* One function for any number of rows in a range, made of kernels for fixed numbers of them.
 * Blocks of rows follow each other as the plan says. The last block may begin earlier, computing some rows again to the same
 * values; where the whole has fewer rows than it, it works on padded copies in the workspace. */
#include "tuner_runtime.h"

#include <string.h>

static int refuse_extent(const struct tuner_function *function, int64_t rows) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  return tuner_fail(TUNER_ERROR_EXTENT, "%s: %s is %lld, outside its range %lld to %lld", function->symbol, portfolio->extent,
                    (long long)rows, (long long)portfolio->low, (long long)portfolio->high);
}

/* The kernel on the rows from `row` on. */
static int call_at(const struct tuner_function *function, const struct tuner_function *kernel, void *const *buffers, int64_t row) {
  void *moved[TUNER_MAX_ARGUMENTS];
  for (int32_t i = 0; i < function->num_arguments; ++i)
    moved[i] = (char *)buffers[i] + (uint64_t)row * function->arguments[i].row_bytes;
  return tuner_call(kernel, moved);
}

/* The kernel on copies that have as many rows as it wants; `left` rows from `row` on are the caller's. */
static int call_padded(const struct tuner_function *function, const struct tuner_function *kernel, void *const *buffers,
                       int64_t row, int64_t left) {
  void *given[TUNER_MAX_ARGUMENTS], *copies[TUNER_MAX_ARGUMENTS] = {NULL};
  int status = TUNER_OK;
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    const struct tuner_argument *argument = &function->arguments[i];
    given[i] = buffers[i];
    if (argument->row_bytes == 0) continue;
    uint64_t used = (uint64_t)left * argument->row_bytes, whole = kernel->arguments[i].nbytes;
    copies[i] = given[i] = tuner_workspace(whole);
    if (copies[i] == NULL) {
      status = TUNER_ERROR_MEMORY;
      break;
    }
    if (argument->is_output) continue;
    memcpy(copies[i], (const char *)buffers[i] + (uint64_t)row * argument->row_bytes, used);
    memset((char *)copies[i] + used, 0, whole - used);
  }
  if (status == TUNER_OK) status = tuner_call(kernel, given);
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    if (copies[i] == NULL) continue;
    const struct tuner_argument *argument = &function->arguments[i];
    if (status == TUNER_OK && argument->is_output)
      memcpy((char *)buffers[i] + (uint64_t)row * argument->row_bytes, copies[i], (uint64_t)left * argument->row_bytes);
    tuner_workspace_free(copies[i]);
  }
  return status;
}

int tuner_check_rows(const struct tuner_function *function, int64_t rows) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  return rows < portfolio->low || rows > portfolio->high ? refuse_extent(function, rows) : TUNER_OK;
}

int tuner_call_rows(const struct tuner_function *function, void *const *buffers, int64_t rows) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  for (int64_t row = 0; row < rows;) {
    int64_t left = rows - row;
    int32_t place = portfolio->plan[left];
    const struct tuner_function *kernel = portfolio->kernels[place];
    int64_t block = portfolio->rows[place];
    int status;
    if (block <= left) {
      status = call_at(function, kernel, buffers, row);
    } else if (block <= rows) {
      status = call_at(function, kernel, buffers, rows - block);
    } else {
      status = call_padded(function, kernel, buffers, row, left);
    }
    if (status != TUNER_OK) return status;
    row += block;
  }
  return TUNER_OK;
}
