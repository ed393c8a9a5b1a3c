cimport cython

from reinforcement_learning.game.fast_game.state cimport Body as CBody

cdef class Listing:
    cdef public list seen, seen_starts, owned, owned_starts, listed
    @cython.locals(place=cython.Py_ssize_t)
    cpdef int seen_id(self, Py_ssize_t agent, Py_ssize_t option)
    @cython.locals(place=cython.Py_ssize_t)
    cpdef int owned_id(self, Py_ssize_t agent, Py_ssize_t option)
    cpdef int listed_id(self, Py_ssize_t option)

@cython.locals(choice=dict, options=dict, name=str, arguments=list, argument=str, column=cython.Py_ssize_t)
cdef _decode(list heads, list row)

cpdef decode(list heads, list rows, dict slots, list agents)

cpdef padded(values, dict slots, absent)

@cython.locals(players=dict, npcs=dict, items=dict, listing=Listing, valid=dict, body=CBody, index_of=dict)
cpdef executable(chosen, realm, writer)

@cython.locals(made=dict)
cdef _executable(choice, Listing listing, Py_ssize_t index, dict players, dict npcs, dict items)

cdef _entity(int number, dict players, dict npcs)
