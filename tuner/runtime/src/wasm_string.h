/* <string.h> of modules of WebAssembly, which have no C library: what the runtime takes from it. */
#ifndef TUNER_WASM_STRING_H
#define TUNER_WASM_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t nbytes);
void *memmove(void *to, const void *from, size_t nbytes);
void *memset(void *to, int byte, size_t nbytes);
int strcmp(const char *one, const char *other);

#endif
