cimport cython

from reinforcement_learning.game.fast_game.observations cimport Listing as CListing
from reinforcement_learning.game.fast_game.state cimport Body as CBody

@cython.locals(choice=dict, options=dict, name=str, arguments=list, argument=str, column=cython.Py_ssize_t)
cdef _decode(list heads, list row)

cpdef decode(list heads, list rows, dict slots, list agents)

cpdef padded(values, dict slots, absent)

@cython.locals(players=dict, npcs=dict, items=dict, listing=CListing, valid=dict, body=CBody, index_of=dict)
cpdef executable(chosen, realm, writer)

@cython.locals(made=dict)
cdef _executable(choice, CListing listing, Py_ssize_t index, dict players, dict npcs, dict items)

cdef _entity(int number, dict players, dict npcs)
