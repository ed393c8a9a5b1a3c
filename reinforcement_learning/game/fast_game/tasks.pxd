cimport cython

cdef class Watch:
    cdef public object task, read, compute, last_read
    cdef public int agent
    cdef public dict arguments
    cdef public set awaited
    cdef public bint simple, holds_state
    cpdef bint is_settled(self, state, set happened)

cpdef rewards_of(Watch watch, state, set happened)

cdef _reward(task, double progress, state)

cpdef _rows_of(list ids)

@cython.locals(watch=Watch)
cpdef all_rewards(list watches, state, set happened, set current)
