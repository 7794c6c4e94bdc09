-- Register a worker as a sleeper, unless something may be taken.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3], ARGV[4]: as take.lua has them
-- Returns  epoch, when to come again (0: at once; -1: only when woken)
--
-- Atomic, because what comes between a look and a registration would wake nobody.
--
--- include: state though_full wake known companies turns line lines windows time

local _, _, ALONE, SLEEPS_UNTIL, LIMITER_MAX, LIMITER_MS = sunpack('>dddddd', ARGV[3])
local limiter = shared_limit(LIMITER_MAX, LIMITER_MS)

local function takeable()
    if limiter and room_in(limiter) == 0 then
        return false
    end
    local one = peek()
    if one then
        return one.waiting > 0
    end
    if ALONE == 1 then
        for _, found in ipairs(suspects_due()) do
            if not found.company.blocked and has_room(found.company) then
                return true
            end
        end
    end
    return false
end

advance()
local answer = '0'
if not takeable() then
    call('ZADD', P .. ':sleepers', SLEEPS_UNTIL, ARGV[4])
    answer = next_moment(limiter)
end
if limiter then
    S.limited = math.max(0, limiter.given)
end
save_windows()
return finish(answer)
