cimport cython

from reinforcement_learning.game.fast_game.state cimport Cells as CCells

@cython.locals(column=cython.Py_ssize_t)
cpdef write_event(CCells cells, Py_ssize_t row, int tick, int code, int entity, tuple details)
