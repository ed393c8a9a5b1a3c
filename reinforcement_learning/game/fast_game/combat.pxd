cimport cython

from reinforcement_learning.game.fast_game.state cimport Attribute as CAttribute, Body as CBody

cdef class Rules:
    cdef public object immunity, base_defence, level_defence, weakness, least_share, formula, experience
    cdef public list reach, base_damage, level_damage

@cython.locals(kind=cython.int)
cpdef attack(realm, Rules rules, CBody body, style, CBody target)

@cython.locals(level=CAttribute)
cdef _hit(realm, Rules rules, CBody body, int kind, CBody target)

cdef _receive(CBody body, CBody target, damage)

@cython.locals(experience=CAttribute, level=CAttribute)
cdef _learn(realm, Rules rules, CBody body, int kind)

cpdef worn(CBody body, str name)

@cython.locals(experience=list, known=CAttribute)
cdef _is_weak(CBody target, int kind)
