cimport cython

from reinforcement_learning.game.fast_game.state cimport Body as CBody

cdef class Ground:
    cdef public list habitable, tiles, occupants
    cdef public int centre_row, centre_column, reach

@cython.locals(row=cython.Py_ssize_t, column=cython.Py_ssize_t, progress=cython.int, line=list, here=dict)
cpdef move(Ground ground, log, CBody body, int down, int right)

@cython.locals(body=CBody, down=cython.int, right=cython.int)
cpdef move_all(Ground ground, log, list moves)

@cython.locals(row=cython.Py_ssize_t, column=cython.Py_ssize_t, turn=cython.int, down=cython.int, right=cython.int)
cpdef wander(Ground ground, CBody body, int start)

cpdef regrow(tiles)
