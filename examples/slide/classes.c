/* Which classes samples compute, and steps on the rows of weights that they name. Single passes over arrays that the caller
 * gives, scratch included, where NumPy would go over them ten times, and kernels would write rows that do not change. */
#include <stdint.h>
#include <string.h>

#define NONE (-1)
enum { LINE = 64, AHEAD = 8 }; /* bytes that are fetched together; rows that are fetched before they change */

/* Puts each class, in the given order, into the bucket of its code in each table: buckets is
 * [tables][codes][room] and begins as NONEs, filled is [tables][codes] and begins as zeros. */
void fill_buckets(int32_t *buckets, int32_t *filled, const int32_t *codes_of, const int32_t *order, int64_t classes, int64_t tables,
                  int64_t codes, int64_t room) {
  for (int64_t place = 0; place < classes; ++place) {
    const int32_t *own = codes_of + order[place] * tables;
    for (int64_t table = 0; table < tables; ++table) {
      const int64_t bucket = table * codes + own[table];
      if (filled[bucket] < room) buckets[bucket * room + filled[bucket]++] = order[place];
    }
  }
}

/* What the buckets of the codes of each sample hold, [samples][tables][room]; codes_of is [samples][tables]. */
void in_buckets(int32_t *found, const int32_t *buckets, const int32_t *codes_of, int64_t samples, int64_t tables, int64_t codes,
                int64_t room) {
  for (int64_t place = 0; place < samples * tables; ++place, found += room)
    memcpy(found, buckets + (place % tables * codes + codes_of[place]) * room, (size_t)room * sizeof *found);
}

/* Of each row `count` different numbers, or fewer and then NONEs: those of first, then those that
 * are most often in often. times is a zero for each number and is left so; found has room for all
 * numbers of a row, and ends[t] for those named at most t times, where t is up to `named`. */
void most_named(int32_t *chosen, const int32_t *first, const int32_t *often, int32_t *times, int32_t *found, int32_t *ends,
                int64_t rows, int64_t firsts, int64_t named, int64_t count) {
  for (int64_t row = 0; row < rows; ++row, chosen += count, first += firsts, often += named) {
    int64_t numbers = 0, taken = 0;
    for (int64_t i = 0; i < firsts; ++i) {
      if (times[first[i]]) continue;
      times[first[i]] = (int32_t)named + 1;
      found[numbers++] = first[i];
    }
    for (int64_t i = 0; i < named; ++i) {
      if (often[i] == NONE || times[often[i]] > named) continue;
      if (times[often[i]]++ == 0) found[numbers++] = often[i];
    }
    for (int64_t t = 0; t <= named + 1; ++t) ends[t] = 0;
    for (int64_t i = 0; i < numbers; ++i) ++ends[times[found[i]]];
    /* The least count of which not all are taken, and how many of it are. */
    int64_t least = named + 1, left = count;
    while (least > 0 && ends[least] <= left) left -= ends[least--];
    for (int64_t i = 0; i < numbers; ++i) {
      const int32_t own = times[found[i]];
      if (own > least || (own == least && left-- > 0)) chosen[taken++] = found[i];
      times[found[i]] = 0;
    }
    while (taken < count) chosen[taken++] = NONE;
  }
}

/* The classes of each sample: its own, or the first drawn one for a NONE, then those drawn for its
 * group. offsets has those of drawn classes, -inf where one is there before, and of own ones 0.
 * seen is a number for each class, none of them above `turn`, the number of samples before. */
void beside_own(int32_t *classes, float *offsets, const int32_t *own, const int32_t *drawn, const float *offset_of, int64_t *seen,
                int64_t turn, int64_t samples, int64_t owns, int64_t groups, int64_t count) {
  const float nothing = -__builtin_inff();
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int32_t *group = drawn + sample * groups / samples * count;
    ++turn;
    for (int64_t i = 0; i < owns; ++i, ++own, ++classes, ++offsets) {
      *classes = *own == NONE ? group[0] : *own;
      *offsets = *own == NONE ? nothing : 0;
      if (*own != NONE) seen[*own] = turn;
    }
    for (int64_t i = 0; i < count; ++i, ++classes, ++offsets) {
      *classes = group[i];
      *offsets = seen[group[i]] == turn ? nothing : offset_of[group[i]];
      seen[group[i]] = turn;
    }
  }
}

static void fetch(const void *row, int64_t bytes) {
  for (int64_t place = 0; place < bytes; place += LINE) __builtin_prefetch((const char *)row + place, 1);
}

static void change_row(float *restrict row, const float *restrict x, float scale, int64_t depth) {
  for (int64_t d = 0; d < depth; ++d) row[d] -= scale * x[d];
}

/* The same of numbers whose bits are (nearest << 16) + rest: the nearest bfloat16, of two as near the one further from 0, and what
 * that leaves. */
static void change_parts(uint16_t *restrict nearest, int16_t *restrict rest, const float *restrict x, float scale, int64_t depth) {
  for (int64_t d = 0; d < depth; ++d) {
    uint32_t bits = ((uint32_t)nearest[d] << 16) + (uint32_t)(int32_t)rest[d];
    float number;
    memcpy(&number, &bits, sizeof number);
    number -= scale * x[d];
    memcpy(&bits, &number, sizeof bits);
    nearest[d] = (uint16_t)((bits + 0x8000u) >> 16);
    rest[d] = (int16_t)bits;
  }
}

/* A step of gradient descent in place: from row names[s][i] of a matrix goes rate * weights[s][i] * x[s], and as much without x[s]
 * from its element of bias, unless that is null. Rows have `depth` numbers. The matrix is `whole`, or null and in two parts. */
void change_rows(float *whole, uint16_t *nearest, int16_t *rest, float *bias, const int32_t *names, const float *weights, const float *x,
                 float rate, int64_t samples, int64_t per_sample, int64_t depth) {
  const int64_t count = samples * per_sample;
  for (int64_t sample = 0, i = 0; sample < samples; ++sample, x += depth) {
    for (const int64_t end = i + per_sample; i < end; ++i) {
      const int64_t place = names[i] * depth, ahead = names[i + AHEAD < count ? i + AHEAD : count - 1] * depth;
      const float scale = rate * weights[i];
      if (whole) {
        fetch(whole + ahead, depth * 4);
        change_row(whole + place, x, scale, depth);
      } else {
        fetch(nearest + ahead, depth * 2);
        fetch(rest + ahead, depth * 2);
        change_parts(nearest + place, rest + place, x, scale, depth);
      }
      if (bias) bias[names[i]] -= scale;
    }
  }
}
