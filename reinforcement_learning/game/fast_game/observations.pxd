cimport cython

cdef class Listing:
    cdef public list seen, seen_starts, owned, owned_starts, listed
    @cython.locals(place=cython.Py_ssize_t)
    cpdef int seen_id(self, Py_ssize_t agent, Py_ssize_t option)
    @cython.locals(place=cython.Py_ssize_t)
    cpdef int owned_id(self, Py_ssize_t agent, Py_ssize_t option)
    cpdef int listed_id(self, Py_ssize_t option)
