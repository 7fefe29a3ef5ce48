/* Calls one function of a library on arrays in files: driver LIBRARY SYMBOL (in|out):BYTES:FILE…
 * Outputs are filled with a poison, and written to their files after the call. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 10, ALIGNMENT = 64, POISON = 0xFF };
typedef int (*kernel)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
typedef const char *(*text)(void);

static int fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int main(int count, char **words) {
  void *buffers[MOST] = {0}, *library = dlopen(words[1], RTLD_NOW);
  if (library == NULL) return fail(words[1], dlerror());
  kernel called = (kernel)(long)dlsym(library, words[2]);
  if (called == NULL || count - 3 > MOST) return fail(words[2], "no such function, or too many arguments");
  for (int i = 3; i < count; ++i) {
    int in = words[i][0] == 'i';
    size_t size = strtoul(strchr(words[i], ':') + 1, NULL, 10);
    char *path = strrchr(words[i], ':') + 1;
    if (posix_memalign(&buffers[i - 3], ALIGNMENT, size + ALIGNMENT)) return fail(path, "no memory");
    memset(buffers[i - 3], POISON, size + ALIGNMENT);
    FILE *file = in ? fopen(path, "rb") : NULL;
    if (in && (file == NULL || fread(buffers[i - 3], 1, size, file) != size)) return fail(path, "cannot be read");
    if (file != NULL) fclose(file);
  }
  int status = called(buffers[0], buffers[1], buffers[2], buffers[3], buffers[4], buffers[5], buffers[6], buffers[7],
                      buffers[8], buffers[9]);
  if (status != 0) {
    text last = (text)(long)dlsym(library, "emulated_last_error");
    return fail(words[2], last != NULL ? last() : "failed");
  }
  for (int i = 3; i < count; ++i) {
    size_t size = strtoul(strchr(words[i], ':') + 1, NULL, 10);
    char *path = strrchr(words[i], ':') + 1;
    for (size_t k = 0; k < ALIGNMENT; ++k)
      if (((unsigned char *)buffers[i - 3])[size + k] != POISON) return fail(path, "written beyond its end");
    if (words[i][0] == 'i') continue;
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(buffers[i - 3], 1, size, file) != size || fclose(file)) return fail(path, "cannot be written");
  }
  return 0;
}
