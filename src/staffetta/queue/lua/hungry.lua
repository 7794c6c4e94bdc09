-- Name the companies that somebody should feed, the neediest first, each to one worker; or register who asked.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3]  packed: how many at most, for how long they are this worker's to feed in ms, until when it sleeps if there
--          are none
-- ARGV[4]  the worker's name among feeders
-- Returns  epoch, for each: name, the job behind which its next page begins (empty: from the beginning)
--
-- Atomic, because `missed` is put down with the question: what is refused from here on the page may not know.
--
--- include: state though_full wake known companies turns line lines

local MOST, CLAIM, SLEEPS_UNTIL = sunpack('>ddd', ARGV[FIRST])
local worker = ARGV[FIRST + 1]
local answer = {}
local others = 0
for _, number in ipairs(call('ZRANGE', P .. ':hungry', 0, 4 * MOST)) do
    if #answer >= 2 * MOST then
        break
    end
    local claim = call('HGET', P .. ':feeding', number)
    if claim and claim:sub(9) ~= worker and sunpack('>d', claim) > NOW then
        others = others + 1
    else
        local one = company(tonumber(number))
        if one then
            one.missed = false
            call('HSET', P .. ':feeding', number, spack('>d', NOW + CLAIM) .. worker)
            answer[#answer + 1], answer[#answer + 2] = one.name, ends(one).cursor or ''
        else
            call('ZREM', P .. ':hungry', number)
        end
    end
end
if #answer == 0 then
    call('ZADD', P .. ':feeders', SLEEPS_UNTIL, worker)
end
return finish({ others, answer })
