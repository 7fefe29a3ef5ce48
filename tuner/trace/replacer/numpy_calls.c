/* Answers calls of NumPy's functions by kernels, see vectorcall.h and `numpy_calls.py`.
 *
 * Calls are equal where all that is read of them is: function, keywords, and of each argument
 * its type, an array's dtype, shape and strides, a small integer's value, a text's hash. Python
 * says once for each kind of calls which kernel it has, and once whether the kernel gave what
 * NumPy did. */
#include "vectorcall.h"

#include <stdlib.h>
#include <string.h>

typedef struct PyThreadState PyThreadState;
extern PyThreadState *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(PyThreadState *);
extern Object *PyErr_Occurred(void);
extern double PyFloat_AsDouble(Object *);
extern Object *PyObject_GetItem(Object *, Object *);
extern Object *PyCapsule_New(void *, const char *, void *);
extern void *PyCapsule_GetPointer(Object *, const char *);

enum {
    ALIGNMENT = 64,
    PLACES = 1 << 14,
    MOST_WORDS = 128,
    MOST_INPUTS = 5,
    MOST_RANK = 8,
    NONE = -1,
    UNCHECKED = 0,
    CHECKED = 1,
    REFUSED = 2,
    FLOAT = 11, /* NumPy's numbers of types */
    DOUBLE = 12,
};

typedef int (*Pointers2)(void *, void *);
typedef int (*Pointers3)(void *, void *, void *);
typedef int (*Pointers4)(void *, void *, void *, void *);
typedef int (*Pointers5)(void *, void *, void *, void *, void *);
typedef int (*Pointers6)(void *, void *, void *, void *, void *, void *);

/* As `_Kernel` in numpy_calls.py. */
typedef struct {
    void *function;
    int inputs;
    int arguments[MOST_INPUTS]; /* that the inputs are */
    int types[MOST_INPUTS];     /* of inputs, as which a number is passed */
    int type, rank;             /* of the result */
    ptrdiff_t extents[MOST_RANK];
    int releases; /* whether other threads of Python run meanwhile */
} Kernel;

typedef struct {
    double calls, left; /* answered by the kernel, and matched but left to NumPy */
} Count;

typedef struct {
    uint64_t hash;
    uint64_t *key;
    int words, kernel, state;
} Place;

typedef int (*Match)(Object *callable, Object *arguments, Object *keywords);
typedef int (*Confirm)(int kernel, Object *right, Object *result);

static Place places[PLACES];
static int filled;
static const Kernel *kernels;
static Count *counts;
static Match match;
static Confirm confirm;
static void **numpy; /* its table for C */
static void *array_type;
static Object *no_index, *handler;
static __thread int depth, has_handler;

/* --- memory: NumPy's own, at multiples of 64 bytes, as kernels take it */

typedef struct {
    void *ctx;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *, size_t);
} Allocator;

/* NEP 49. */
typedef struct {
    char name[127];
    uint8_t version;
    Allocator allocator;
} Handler;

/* Before each block. */
typedef struct {
    char *base;
    size_t size;
} Header;

enum { EXTRA = ALIGNMENT + sizeof(Header) };

static Allocator own;

static char *block(char *base)
{
    uintptr_t first = (uintptr_t)base + sizeof(Header) + ALIGNMENT - 1;
    return (char *)(first & ~(uintptr_t)(ALIGNMENT - 1));
}

static void *with_header(char *base, size_t size)
{
    if (base == NULL)
        return NULL;
    char *data = block(base);
    ((Header *)data)[-1] = (Header){base, size};
    return data;
}

static void *aligned_malloc(void *ctx, size_t size)
{
    (void)ctx;
    return size > SIZE_MAX - EXTRA ? NULL : with_header(own.malloc(own.ctx, size + EXTRA), size);
}

static void *aligned_calloc(void *ctx, size_t count, size_t each)
{
    (void)ctx;
    if (each && count > (SIZE_MAX - EXTRA) / each)
        return NULL;
    return with_header(own.calloc(own.ctx, 1, count * each + EXTRA), count * each);
}

static void *aligned_realloc(void *ctx, void *data, size_t size)
{
    if (data == NULL)
        return aligned_malloc(ctx, size);
    if (size > SIZE_MAX - EXTRA)
        return NULL;
    Header before = ((Header *)data)[-1];
    ptrdiff_t offset = (char *)data - before.base;
    char *base = own.realloc(own.ctx, before.base, size + EXTRA);
    if (base == NULL)
        return NULL;
    if (block(base) != base + offset)
        memmove(block(base), base + offset, before.size < size ? before.size : size);
    return with_header(base, size);
}

static void aligned_free(void *ctx, void *data, size_t size)
{
    (void)ctx, (void)size;
    if (data == NULL)
        return;
    Header before = ((Header *)data)[-1];
    own.free(own.ctx, before.base, before.size + EXTRA);
}

static Handler aligned = {
    "tuner_aligned", 1, {NULL, aligned_malloc, aligned_calloc, aligned_realloc, aligned_free}};

/* Each thread has a context of its own, which starts with NumPy's handler. */
static void align_memory(void)
{
    if (has_handler || handler == NULL)
        return;
    has_handler = 1;
    Object *before = ((Object * (*)(Object *)) numpy[304])(handler);
    if (before == NULL)
        PyErr_Clear();
    else
        Py_DecRef(before);
}

/* --- what a call is */

static int push(uint64_t *key, int words, uint64_t value)
{
    if (words < 0 || words == MOST_WORDS)
        return NONE;
    key[words] = value;
    return words + 1;
}

static int push_array(uint64_t *key, int words, const Array *array)
{
    const Descriptor *dtype = array->descriptor;
    if (dtype->byteorder != '=' && dtype->byteorder != '|')
        return NONE; /* the other order of bytes */
    words = push(key, words, (uint64_t)dtype->number << 8 | (uint64_t)array->rank);
    for (int axis = 0; axis < array->rank; axis++) {
        words = push(key, words, (uint64_t)array->extents[axis]);
        words = push(key, words, (uint64_t)array->strides[axis]);
    }
    return words;
}

/* The words with those of an argument; NONE for one that is not read as a whole. */
static int push_argument(uint64_t *key, int words, Object *argument, int nested)
{
    void *type = argument->type;
    words = push(key, words, (uint64_t)(uintptr_t)type);
    if (type == array_type)
        return push_array(key, words, (const Array *)argument);
    if (type == PyLong_Type || type == PyBool_Type) {
        int overflow = 0;
        long long value = PyLong_AsLongLongAndOverflow(argument, &overflow);
        int is_small = !overflow && value >= -SMALL && value <= SMALL;
        return push(key, words, is_small ? (uint64_t)(value + SMALL + 1) : 0);
    }
    if (type == PyUnicode_Type)
        return push(key, words, (uint64_t)PyObject_Hash(argument));
    int is_tuple = type == PyTuple_Type;
    if (is_tuple || type == PyList_Type) {
        if (nested)
            return NONE;
        ptrdiff_t count = is_tuple ? PyTuple_Size(argument) : PyList_Size(argument);
        words = push(key, words, (uint64_t)count);
        for (ptrdiff_t place = 0; place < count && words >= 0; place++) {
            Object *entry =
                is_tuple ? PyTuple_GetItem(argument, place) : PyList_GetItem(argument, place);
            words = push_argument(key, words, entry, 1);
        }
    }
    return words;
}

static int key_of(uint64_t *key, Object *callable, Object *const *arguments, ptrdiff_t positional,
                  Object *keywords)
{
    ptrdiff_t named = keywords ? PyTuple_Size(keywords) : 0;
    int words = push(key, 0, (uint64_t)(uintptr_t)callable);
    words = push(key, words, (uint64_t)positional << 32 | (uint64_t)named);
    for (ptrdiff_t place = 0; place < named; place++)
        words = push(key, words, (uint64_t)PyObject_Hash(PyTuple_GetItem(keywords, place)));
    for (ptrdiff_t place = 0; place < positional + named && words >= 0; place++)
        words = push_argument(key, words, arguments[place], 0);
    return words;
}

/* The place of a key, or the free one where it would be. */
static Place *place_of(uint64_t hash, const uint64_t *key, int words)
{
    uint32_t number = (uint32_t)(hash % PLACES);
    for (;; number = (number + 1) % PLACES) {
        Place *place = &places[number];
        if (place->key == NULL)
            return place;
        if (place->hash == hash && place->words == words &&
            memcmp(place->key, key, (size_t)words * sizeof *key) == 0)
            return place;
    }
}

/* The place of a kind of calls, which Python is asked about when it is met first. NULL where
 * there are too many. */
static Place *matched(const uint64_t *key, int words, Object *callable, Object *const *arguments,
                      ptrdiff_t count, Object *keywords)
{
    uint64_t hash = 1;
    for (int word = 0; word < words; word++)
        hash = mixed(hash, key[word]);
    Place *place = place_of(hash, key, words);
    if (place->key != NULL)
        return place;
    if (filled >= PLACES / 2)
        return NULL;
    Object *tuple = tuple_of(arguments, count);
    uint64_t *copy = malloc((size_t)words * sizeof *key);
    int kernel = NONE;
    if (tuple != NULL && copy != NULL) {
        depth++; /* what matches a call may call NumPy */
        kernel = match(callable, tuple, keywords);
        depth--;
    }
    if (tuple != NULL)
        Py_DecRef(tuple);
    /* Matching runs Python, in which another thread may have filled the place. */
    place = place_of(hash, key, words);
    if (place->key != NULL || copy == NULL) {
        free(copy);
        return place->key == NULL ? NULL : place;
    }
    memcpy(copy, key, (size_t)words * sizeof *key);
    *place = (Place){hash, copy, words, kernel, UNCHECKED};
    filled++;
    return place;
}

/* --- what a kernel answers */

/* A number as an input of one element; 0 where it is none of that type. */
static int pass_number(Object *number, int type, char *memory)
{
    if (type != FLOAT && type != DOUBLE)
        return 0;
    double value = PyFloat_AsDouble(number);
    if (value == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    float narrow = (float)value;
    if (type == FLOAT)
        memcpy(memory, &narrow, sizeof narrow);
    else
        memcpy(memory, &value, sizeof value);
    return 1;
}

static int run(const Kernel *kernel, void *const *p)
{
    switch (kernel->inputs) {
    case 1:
        return ((Pointers2)kernel->function)(p[0], p[1]);
    case 2:
        return ((Pointers3)kernel->function)(p[0], p[1], p[2]);
    case 3:
        return ((Pointers4)kernel->function)(p[0], p[1], p[2], p[3]);
    case 4:
        return ((Pointers5)kernel->function)(p[0], p[1], p[2], p[3], p[4]);
    default:
        return ((Pointers6)kernel->function)(p[0], p[1], p[2], p[3], p[4], p[5]);
    }
}

/* A new array as the kernel computes it; NULL, without an error, where it cannot. */
static Object *computed(const Kernel *kernel, Object *const *arguments)
{
    _Alignas(ALIGNMENT) char numbers[MOST_INPUTS][ALIGNMENT];
    void *pointers[MOST_INPUTS + 1];
    for (int input = 0; input < kernel->inputs; input++) {
        Object *argument = arguments[kernel->arguments[input]];
        if (argument->type == array_type) {
            pointers[input] = ((Array *)argument)->data;
            if ((uintptr_t)pointers[input] % ALIGNMENT)
                return NULL;
        } else {
            pointers[input] = numbers[input];
            if (!pass_number(argument, kernel->types[input], numbers[input]))
                return NULL;
        }
    }
    Object *(*new_array)(void *, int, const ptrdiff_t *, int, const ptrdiff_t *, void *, int, int,
                         Object *) = numpy[93];
    Object *result = new_array(array_type, kernel->rank, kernel->extents, kernel->type, NULL, NULL,
                               0, 0, NULL);
    if (result == NULL) {
        PyErr_Clear();
        return NULL;
    }
    void *data = pointers[kernel->inputs] = ((Array *)result)->data;
    PyThreadState *others = kernel->releases ? PyEval_SaveThread() : NULL;
    int status = (uintptr_t)data % ALIGNMENT ? 1 : run(kernel, pointers);
    if (others != NULL)
        PyEval_RestoreThread(others);
    if (status == 0 && kernel->rank)
        return result;
    Object *number = status ? NULL : PyObject_GetItem(result, no_index); /* as NumPy has it */
    Py_DecRef(result);
    if (number == NULL)
        PyErr_Clear();
    return number;
}

static Object *answered(Object *callable, Object *const *arguments, size_t flags, Object *keywords)
{
    Vectorcall original = kinds[kind_of(callable)].original;
    uint64_t key[MOST_WORDS];
    if (depth)
        return original(callable, arguments, flags, keywords);
    align_memory();
    ptrdiff_t positional = positional_of(flags);
    int words = key_of(key, callable, arguments, positional, keywords);
    if (words < 0)
        return original(callable, arguments, flags, keywords);
    ptrdiff_t count = positional + (keywords ? PyTuple_Size(keywords) : 0);
    Place *place = matched(key, words, callable, arguments, count, keywords);
    if (place == NULL || place->kernel == NONE)
        return original(callable, arguments, flags, keywords);
    Count *counted = &counts[place->kernel];
    Object *result =
        place->state == REFUSED ? NULL : computed(&kernels[place->kernel], arguments);
    if (result != NULL && place->state == CHECKED) {
        counted->calls += 1;
        return result;
    }
    counted->left += 1;
    Object *right = original(callable, arguments, flags, keywords);
    if (right != NULL && result != NULL) {
        depth++;
        int is_right = confirm(place->kernel, right, result);
        depth--;
        if (place->state != REFUSED)
            place->state = is_right ? CHECKED : REFUSED;
    }
    if (result != NULL)
        Py_DecRef(result);
    return right;
}

/* `table` is NumPy's for C; `aligns` says whether it has handlers of memory. */
void tuner_run_start(void **table, const Kernel *all, Count *counting, Match matching,
                     Confirm confirming, int aligns)
{
    numpy = table;
    array_type = table[2];
    kernels = all;
    counts = counting;
    match = matching;
    confirm = confirming;
    no_index = PyTuple_New(0);
    if (!aligns)
        return;
    Object *before = ((Object * (*)(void)) table[305])();
    Handler *theirs = before ? PyCapsule_GetPointer(before, "mem_handler") : NULL;
    if (theirs != NULL) {
        own = theirs->allocator;
        handler = PyCapsule_New(&aligned, "mem_handler", NULL);
    }
    PyErr_Clear();
    align_memory();
}

/* After a fork: the child counts into a table of its own. */
void tuner_run_count(Count *counting)
{
    counts = counting;
}

int tuner_run_wrap(Object *callable, ptrdiff_t offset, int whole)
{
    return wrap(callable, offset, whole, answered);
}
