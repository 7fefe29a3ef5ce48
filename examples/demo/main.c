/* Calls the two kernels of the demo's exported library and checks every element against plain loops in double precision.
   Compiled and run by demo.py; needs the library, its header and libm. */
#include <demo.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static float *array(size_t count) {
  float *memory = demo_alloc(count * sizeof(float)); /* 64-byte aligned, as the kernels want it */
  if (memory == NULL) {
    fprintf(stderr, "no memory for %zu floats\n", count);
    exit(1);
  }
  return memory;
}

/* Values in [-1, 1) from a linear congruential generator (Numerical Recipes' constants). */
static void fill(float *values, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

/* The largest error of max(A B + bias, low), relative to the sum of the products' sizes; bias may be NULL. */
static double largest_error(const float *a, const float *b, const float *bias, double low, const float *c, int m, int n, int k) {
  double worst = 0.0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = bias ? bias[j] : 0.0, size = fabs(sum);
      for (int r = 0; r < k; ++r) {
        double product = (double)a[i * k + r] * b[r * n + j];
        sum += product;
        size += fabs(product);
      }
      double error = fabs(c[i * n + j] - fmax(sum, low)) / size;
      if (!(error <= worst)) worst = error; /* a NaN is an error, too */
    }
  }
  return worst;
}

static int report(const char *name, int status, double error) {
  if (status != 0) {
    printf("%s: error %d: %s\n", name, status, demo_last_error());
    return 1;
  }
  int right = error <= 1e-5;
  printf("%s: largest error %.1e, %s\n", name, error, right ? "right" : "WRONG");
  return !right;
}

int main(void) {
  int failures = 0;
  {
    enum { M = 512, N = 512, K = 512 };
    float *a = array(M * K), *b = array(K * N), *c = array(M * N);
    fill(a, M * K, 1), fill(b, K * N, 2), fill(c, M * N, 3);
    int status = matmul_m512_n512_k512(a, b, c);
    failures += report("matmul_m512_n512_k512", status, largest_error(a, b, NULL, -INFINITY, c, M, N, K));
    demo_free(a), demo_free(b), demo_free(c);
  }
  {
    enum { M = 127, N = 251, K = 193 };
    float *a = array(M * K), *b = array(K * N), *bias = array(N), *c = array(M * N);
    fill(a, M * K, 4), fill(b, K * N, 5), fill(bias, N, 6), fill(c, M * N, 7);
    int status = mlp_m127_n251_k193(a, b, bias, c);
    failures += report("mlp_m127_n251_k193", status, largest_error(a, b, bias, 0.0, c, M, N, K));
    demo_free(a), demo_free(b), demo_free(bias), demo_free(c);
  }
  return failures != 0;
}
