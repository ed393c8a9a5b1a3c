cimport cython

from reinforcement_learning.game.fast_game.ground cimport Ground as CGround
from reinforcement_learning.game.fast_game.state cimport Body as CBody

cdef class Decisions:
    cdef public list moves, attacks

@cython.locals(decisions=Decisions, body=CBody, idle=cython.bint, sequence=list, wrap=cython.int, index=cython.int)
cpdef decide_all(CGround ground, random, dict entities, set watching)

cpdef refresh(CBody body, int age)
