cimport cython

from reinforcement_learning.game.fast_game.combat cimport Rules as CRules, attack
from reinforcement_learning.game.fast_game.state cimport Body as CBody

cdef class Plan:
    cdef public dict early
    cdef public list attacks, moves, sales

@cython.locals(plan=Plan, body=CBody, made=dict, arguments=dict, name=str)
cpdef plan_of(dict entities, dict actions)

@cython.locals(body=CBody)
cpdef call_all(realm, list calls)

@cython.locals(body=CBody)
cpdef attack_all(realm, CRules rules, list attacks)
