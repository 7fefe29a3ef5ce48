/* One function for any number of rows in a range, made of kernels for fixed numbers of them.
 * Blocks of rows follow each other as the plan says. The last block may begin earlier, computing some rows again to the same
 * values; where the whole has fewer rows than it, or rows have no multiple of 64 bytes, it works on copies in the workspace. */
#include "portfolio.h"

#include <stdint.h>
#include <string.h>

#include "call.h"
#include "cpu_features.h"
#include "workspace.h"

static int refuse_extent(const struct tuner_function *function, int64_t rows) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  return tuner_fail(TUNER_ERROR_EXTENT, "%s: %s is %lld, outside its range %lld to %lld", function->symbol, portfolio->extent,
                    (long long)rows, (long long)portfolio->low, (long long)portfolio->high);
}

/* The kernel on the rows from `row` on, of which `left` are the caller's. Where it wants more rows, or rows do not begin as its
 * aligned loads want them, it works on copies, padded with zeros. */
static int call_block(const struct tuner_function *function, const struct tuner_function *kernel, void *const *buffers,
                      int64_t row, int64_t left) {
  void *given[TUNER_MAX_ARGUMENTS], *copies[TUNER_MAX_ARGUMENTS] = {NULL};
  int status = TUNER_OK;
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    const struct tuner_argument *argument = &function->arguments[i];
    const uint64_t used = (uint64_t)left * argument->row_bytes, whole = kernel->arguments[i].nbytes;
    given[i] = (char *)buffers[i] + (uint64_t)row * argument->row_bytes;
    if (argument->row_bytes == 0 || (used == whole && (uintptr_t)given[i] % TUNER_ALIGNMENT == 0)) continue;
    const void *source = given[i];
    copies[i] = given[i] = tuner_workspace(whole);
    if (copies[i] == NULL) {
      status = TUNER_ERROR_MEMORY;
      break;
    }
    if (argument->is_output) continue;
    memcpy(copies[i], source, used);
    memset((char *)copies[i] + used, 0, whole - used);
  }
  if (status == TUNER_OK) status = tuner_call_kernel(kernel, given);
  for (int32_t i = 0; i < function->num_arguments; ++i) {
    if (copies[i] == NULL) continue;
    const struct tuner_argument *argument = &function->arguments[i];
    if (status == TUNER_OK && argument->is_output)
      memcpy((char *)buffers[i] + (uint64_t)row * argument->row_bytes, copies[i], (uint64_t)left * argument->row_bytes);
    tuner_workspace_free(copies[i]);
  }
  return status;
}

static int check_rows(const struct tuner_function *function, int64_t rows) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  return rows < portfolio->low || rows > portfolio->high ? refuse_extent(function, rows) : TUNER_OK;
}

static int call_rows(const struct tuner_function *function, void *const *buffers, int64_t rows) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  for (int64_t row = 0; row < rows;) {
    int64_t left = rows - row;
    int32_t place = portfolio->plan[left];
    const struct tuner_function *kernel = portfolio->kernels[place];
    int64_t block = portfolio->rows[place];
    const int64_t first = block > left && block <= rows ? rows - block : row;
    const int status = call_block(function, kernel, buffers, first, block <= rows - first ? block : rows - first);
    if (status != TUNER_OK) return status;
    row += block;
  }
  return TUNER_OK;
}

/* The kernel of just this extent; its buffers have other shapes than those of other extents. */
static int call_listed(const struct tuner_function *function, void *const *buffers, int64_t extent) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  for (int32_t i = 0; i < portfolio->num_kernels; ++i) {
    if (portfolio->rows[i] == extent) return tuner_call_kernel(portfolio->kernels[i], buffers);
  }
  return tuner_fail(TUNER_ERROR_EXTENT, "%s: %s is %lld, which is none of %s", function->symbol, portfolio->extent,
                    (long long)extent, portfolio->listed);
}

int tuner_call_portfolio(const struct tuner_function *function, void *const *buffers) {
  const struct tuner_portfolio *portfolio = function->portfolio;
  int64_t rows = (int64_t)(intptr_t)buffers[function->num_arguments];
  if (portfolio->listed != NULL) return call_listed(function, buffers, rows);
  int status = check_rows(function, rows);
  for (int32_t i = 0; status == TUNER_OK && i < portfolio->num_kernels; ++i) {
    if (tuner_supported(portfolio->kernels[i]) == NULL) status = TUNER_ERROR_ISA;
  }
  if (status == TUNER_OK) status = tuner_check_buffers(function, buffers, rows);
  return status == TUNER_OK ? call_rows(function, buffers, rows) : status;
}
