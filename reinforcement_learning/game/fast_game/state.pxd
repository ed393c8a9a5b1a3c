cimport cython

cdef class Cells:
    cdef public short[:, ::1] data

cdef class CellRecord:
    cdef public object datastore, table, id
    cdef public Cells cells
    cpdef update(self, Py_ssize_t column, value)

cdef class Attribute:
    cdef public object datastore_record, _name, _min, _max, _val
    cdef public Py_ssize_t _column, row
    cdef public Cells cells
    cpdef update(self, value)
    cpdef increment(self, by=*)
    cpdef decrement(self, by=*)

cdef class Body:
    cdef public object entity, history, resources, equipment, ammunition
    cdef public Attribute row, column, health, food, water, freeze, damage, time_alive, item_level, attacker_id
    cdef public Attribute latest_combat_tick
    cdef public list levels, thresholds, fighting, fighting_levels, slots
    cdef public int kind, most_experience, highest_level
    cdef public bint is_player
    cdef public object number
    cpdef bint can_act(self)
    @cython.locals(level=Attribute)
    cpdef level(self)
    cpdef level_at(self, experience)
