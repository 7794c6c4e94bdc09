-- Prolong leases that are still held.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3]   packed: the leases' new end
-- ARGV[4…]  ids
-- Returns   epoch, the places (from 1) of the ids whose lease was lost
--
-- Atomic, because a lease that ended between look and change may be another worker's by then.
--
--- include: state though_full

local ends_at = sunpack('>d', ARGV[FIRST])
local lost, held = {}, {}
for from = FIRST + 1, #ARGV, 1000 do
    local last = math.min(from + 999, #ARGV)
    local scores = call('ZMSCORE', P .. ':active', unpack(ARGV, from, last))
    for place = from, last do
        if scores[place - from + 1] then
            held[#held + 1], held[#held + 2] = ends_at, ARGV[place]
        else
            lost[#lost + 1] = place - FIRST
        end
    end
end
call_many('ZADD', P .. ':active', held)
return finish(lost)
