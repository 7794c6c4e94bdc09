-- Enter ids in the index of dead letters, or remove them.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3]   bury, revive, or only (these are all there are)
-- ARGV[4…]  ids
-- Returns   epoch
--
-- Atomic as every single command; a file of its own so that all moves end alike.
--
--- include: state though_full

local entries = {}
for place = FIRST + 1, #ARGV do
    if ARGV[FIRST] ~= 'revive' then
        entries[#entries + 1] = string.format('%.0f', NOW)
    end
    entries[#entries + 1] = ARGV[place]
end
if ARGV[FIRST] == 'only' then
    call('DEL', P .. ':dlq')
end
if ARGV[FIRST] ~= 'revive' then
    call_many('ZADD', P .. ':dlq', entries)
else
    call_many('ZREM', P .. ':dlq', entries)
end
return finish(0)
