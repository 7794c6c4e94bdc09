-- Redis asks once, at a script's first write, whether memory is full. What makes room, or hardly takes any, begins
-- with a write that needs none: else a full Redis could not even be emptied.
call('DEL', P .. ':nothing')
