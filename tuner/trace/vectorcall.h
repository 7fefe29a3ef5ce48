/* What stands where CPython calls NumPy's functions: in the `vectorcall` slot of each function
 * object. The objects stay what they were, so a program sees no difference, and operators such
 * as a @ b pass there too.
 *
 * Without Python's or NumPy's headers: what is read of objects has had this layout in all
 * CPythons with a GIL since 3.8, and in NumPy since 1.7. The GIL guards what is static here. */
#ifndef TUNER_VECTORCALL_H
#define TUNER_VECTORCALL_H

#include <stddef.h>
#include <stdint.h>

typedef struct Object {
    ptrdiff_t references;
    void *type;
} Object;

typedef struct {
    Object base;
    void *scalar;
    char kind, type, byteorder, flags;
    int number;
} Descriptor;

typedef struct {
    Object base;
    char *data;
    int rank;
    ptrdiff_t *extents, *strides;
    Object *owner;
    Descriptor *descriptor;
} Array;

typedef Object *(*Vectorcall)(Object *, Object *const *, size_t, Object *);

extern char PyTuple_Type[], PyList_Type[], PyLong_Type[], PyBool_Type[], PyUnicode_Type[];
extern Object *PyTuple_New(ptrdiff_t);
extern int PyTuple_SetItem(Object *, ptrdiff_t, Object *);
extern Object *PyTuple_GetItem(Object *, ptrdiff_t);
extern ptrdiff_t PyTuple_Size(Object *);
extern Object *PyList_GetItem(Object *, ptrdiff_t);
extern ptrdiff_t PyList_Size(Object *);
extern long long PyLong_AsLongLongAndOverflow(Object *, int *);
extern ptrdiff_t PyObject_Hash(Object *);
extern void Py_IncRef(Object *);
extern void Py_DecRef(Object *);
extern void PyErr_Clear(void);

enum {
    KINDS = 4, /* types of function objects */
    SMALL = 8, /* greatest integers that distinguish calls, as exponents and axes do */
};

static struct {
    void *type;
    Vectorcall original;
    int whole; /* what it calls in turn is part of it */
} kinds[KINDS];
static int kind_count;

/* The number of a wrapped function's kind. */
static inline int kind_of(const Object *callable)
{
    int kind = 0;
    while (kinds[kind].type != callable->type)
        kind++;
    return kind;
}

static inline ptrdiff_t positional_of(size_t flags)
{
    return (ptrdiff_t)(flags & ~((size_t)1 << (8 * sizeof(size_t) - 1)));
}

static inline uint64_t mixed(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

/* A call's arguments as a tuple; NULL without memory. */
static inline Object *tuple_of(Object *const *arguments, ptrdiff_t count)
{
    Object *tuple = PyTuple_New(count);
    if (tuple == NULL) {
        PyErr_Clear();
        return NULL;
    }
    for (ptrdiff_t number = 0; number < count; number++) {
        Py_IncRef(arguments[number]);
        PyTuple_SetItem(tuple, number, arguments[number]);
    }
    return tuple;
}

/* Points a function object's slot, `offset` bytes into it, to `ours`. Returns 0 where it has
 * none. */
static inline int wrap(Object *callable, ptrdiff_t offset, int whole, Vectorcall ours)
{
    Vectorcall *slot = (Vectorcall *)((char *)callable + offset);
    if (*slot == NULL || *slot == ours)
        return 0;
    int kind = 0;
    while (kind < kind_count && kinds[kind].type != callable->type)
        kind++;
    if (kind == KINDS || (kind < kind_count && kinds[kind].original != *slot))
        return 0;
    if (kind == kind_count) {
        kinds[kind].type = callable->type;
        kinds[kind].original = *slot;
        kinds[kind].whole = whole;
        kind_count++;
    }
    *slot = ours;
    return 1;
}

#endif
