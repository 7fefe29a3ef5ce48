/* Which classes samples compute, and steps on the rows of weights that they name. Single passes over arrays that the caller
 * gives, scratch included, where NumPy would go over them ten times, and kernels would write rows that do not change. */
#include <stdint.h>
#include <string.h>

#define NONE (-1)
#define INLINE static inline __attribute__((always_inline))
/* Bytes that are fetched together; places before that of a row where it is fetched; samples whose changes of a row are summed. */
enum { LINE = 64, AHEAD = 8, TOGETHER = 4 };

/* Of each `bits` sums in a row the number whose bits are their signs, 1 where one is not negative: codes is [count]. A sum has
 * `bytes`, the sign on top of the last. */
void sign_codes(int32_t *codes, const uint8_t *sums, int64_t bytes, int64_t bits, int64_t count) {
  sums += bytes - 1;
  for (int64_t place = 0; place < count; ++place) {
    int32_t code = 0;
    for (int64_t bit = 0; bit < bits; ++bit, sums += bytes) code |= (*sums < 128) << bit;
    codes[place] = code;
  }
}

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

/* Element d of a sum of `count` vectors with their scales. */
INLINE float summed(const float *x, const float *scales, int count, int depth, int d) {
  float sum = scales[0] * x[d];
  for (int k = 1; k < count; ++k) sum += scales[k] * x[k * depth + d];
  return sum;
}

INLINE void change_wide(float *restrict row, const float *restrict x, const float *scales, int count, int depth) {
  for (int d = 0; d < depth; ++d) row[d] -= summed(x, scales, count, depth, d);
}

/* MurmurHash3's finalizer (Appleby): numbers in a row become bits that look drawn. */
INLINE uint32_t mixed(uint32_t number) {
  number = (number ^ number >> 16) * 0x85ebca6bu;
  number = (number ^ number >> 13) * 0xc2b2ae35u;
  return number ^ number >> 16;
}

INLINE float widened(uint16_t number) {
  const uint32_t bits = (uint32_t)number << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

/* One of the two bfloat16 about the result of an operation, which is their mean over all noise of 16 bits. NaN stays NaN: of an
 * operation it has its first fraction bit. */
INLINE uint16_t rounded(float result, uint32_t noise) {
  uint32_t bits;
  memcpy(&bits, &result, sizeof bits);
  return (uint16_t)((bits + (result == result ? noise : 0)) >> 16);
}

/* The noise of element d are the upper bits of an odd seed times factors[d] (multiply-shift hashing, Dietzfelbinger et al. 1997). A
 * finalizer for each element would take several times the instructions. */
INLINE void change_narrow(uint16_t *restrict row, const float *restrict x, const float *scales, uint32_t seed,
                          const uint32_t *restrict factors, int count, int depth) {
  for (int d = 0; d < depth; ++d) {
    const float changed = widened(row[d]) - summed(x, scales, count, depth, d);
    row[d] = rounded(changed, seed * factors[d] >> 16);
  }
}

/* Whether the sample before has another name in this place. */
INLINE int is_first(const int32_t *names, int64_t place, int64_t per_sample) {
  return place < per_sample || names[place] != names[place - per_sample];
}

/* A step of gradient descent in place: from row names[s][i] of a matrix goes rate * weights[s][i] * x[s], and as much without x[s]
 * from its element of bias, unless that is null. Rows have `depth` numbers. The matrix is `wide`, of float32, or null and `narrow`,
 * the bits of bfloat16. Their noise is told by the places of names, counted from `turn`. A row that neighbouring samples have in one
 * place is read and written once for TOGETHER of them. */
void change_rows(float *wide, uint16_t *narrow, float *bias, const int32_t *names, const float *weights, const float *x, float rate,
                 int64_t turn, int64_t samples, int64_t per_sample, int64_t depth) {
  const int64_t places = samples * per_sample, elements = narrow ? depth : 1;
  uint32_t factors[elements];
  for (int64_t d = 0; d < elements; ++d) factors[d] = mixed((uint32_t)d) | 1;
  for (int64_t sample = 0, place = 0; sample < samples; ++sample, x += depth) {
    for (const int64_t end = place + per_sample; place < end; ++place) {
      const int64_t ahead = place + AHEAD, row = names[place] * depth;
      if (ahead < places && is_first(names, ahead, per_sample)) {
        if (wide) fetch(wide + names[ahead] * depth, depth * 4);
        else fetch(narrow + names[ahead] * depth, depth * 2);
      }
      if (!is_first(names, place, per_sample)) continue;
      const float *vectors = x;
      int64_t left = 1, at = place;
      while (at + left * per_sample < places && names[at + left * per_sample] == names[at]) ++left;
      while (left) {
        const uint32_t seed = mixed((uint32_t)(turn + at)) | 1;
        const int count = left < TOGETHER ? 1 : TOGETHER;
        float scales[TOGETHER];
        for (int k = 0; k < count; ++k, at += per_sample) {
          scales[k] = rate * weights[at];
          if (bias) bias[names[place]] -= scales[k];
        }
        /* A count that the compiler knows leaves sums in registers. */
        if (wide && count == 1) change_wide(wide + row, vectors, scales, 1, (int)depth);
        else if (wide) change_wide(wide + row, vectors, scales, TOGETHER, (int)depth);
        else if (count == 1) change_narrow(narrow + row, vectors, scales, seed, factors, 1, (int)depth);
        else change_narrow(narrow + row, vectors, scales, seed, factors, TOGETHER, (int)depth);
        left -= count, vectors += count * depth;
      }
    }
  }
}
