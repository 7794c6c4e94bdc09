-- How many wait, wait for their time, are in work, and are dead letters.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- Returns  epoch, {waiting, delayed, active, dead letters, a text that changes with what is waiting and with turns}
--
-- Atomic, so that the figures belong to one moment.
--
--- include: state though_full wake known companies turns line lines windows time

advance()
save_windows()
return finish({ S.waiting, call('ZCARD', P .. ':delayed'), call('ZCARD', P .. ':active'), call('ZCARD', P .. ':dlq'),
    spack('>I6I6I6I6', S.turn, S.came, S.known, S.waiting) })
