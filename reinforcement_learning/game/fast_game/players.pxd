cimport cython

from reinforcement_learning.game.fast_game.state cimport Attribute as CAttribute, Body as CBody

cdef class Needs:
    cdef public object enough, depletion, meal, regrowth, hunger, thirst, resilience

@cython.locals(food=CAttribute, water=CAttribute)
cpdef live(Needs needs, realm, CBody body, int on, bint by_fish, bint by_water)

@cython.locals(health=CAttribute)
cdef _heal_and_starve(Needs needs, CBody body)

cpdef forget_fight(CBody body)

@cython.locals(materials=list, fishes=list, waters=list, index=cython.Py_ssize_t, body=CBody)
cpdef live_all(Needs needs, realm, dict actions, list bodies, dict levels, tuple surroundings)
