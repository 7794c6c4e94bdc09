-- Give up to `limit` jobs whose turn it is, under a lease; or register who asked as a sleeper.
--
-- KEYS, ARGV[1], ARGV[2]: see include/state.lua
-- ARGV[3]  packed: limit, lease in ms, 1 if this worker holds nothing (then it may have a suspect), until when it
--          sleeps if it gets nothing (0: not at all), the shared limit and its duration in ms (0: none)
-- ARGV[4]  the worker's name among sleepers
-- Returns  epoch, {when to come again (-1: only when woken), then for each company in the order of turns: its name,
--          its number, how many jobs, the jobs}
--
-- Atomic, because of two workers that ask at once each must get the next ones, every job one lease, and the turn
-- one holder.
--
--- include: state though_full wake known companies turns line lines windows time

local LIMIT, LEASE, ALONE, SLEEPS_UNTIL, LIMITER_MAX, LIMITER_MS = sunpack('>dddddd', ARGV[3])
local limiter = shared_limit(LIMITER_MAX, LIMITER_MS)
local ENDS_AT = string.format('%.0f', NOW + LEASE)
local answer, leased, given = { '-1' }, {}, 0

-- These are given out now.
local function lease(one, ids)
    local place = #answer + 3
    answer[place - 2], answer[place - 1], answer[place] = one.name, one.number, 0
    for _, id in ipairs(ids) do
        local record = call('HGET', bucket(id), id)
        if record then
            answer[#answer + 1] = shown(id, record)
            answer[place] = answer[place] + 1
            leased[#leased + 1], leased[#leased + 2] = ENDS_AT, id
        end
    end
    one.active = one.active + answer[place]
    one.given_at = NOW
    given = given + answer[place]
end

local function serve(one, most)
    if not holds(one) then
        begin_turn(one)
    end
    local count = math.min(most, S.left)
    local window = window_of(one)
    if window then
        count = math.min(count, room_in(window))
        spend(window, count)
    end
    local ids = {}
    count = line_take(one, count, ids)
    lease(one, ids)
    one.given = one.given + count
    S.left = S.left - count
    if one.waiting == 0 and not one.more then
        compete(one)
    elseif S.left == 0 then
        if not FAIR then
            age(one)
        end
        end_turn()
        push(one)
    end
    if one.more and one.waiting <= one.low then
        see_hunger(one)
    end
    if window and room_in(window) == 0 then
        rest(one, room_again_at(window))
    end
    return count
end

local function take_suspect()
    for _, found in ipairs(suspects_due()) do
        local one = found.company
        if not one.blocked and has_room(one) then
            call('ZREM', P .. ':suspects', found.member)
            S.waiting, S.suspects = S.waiting - 1, nil
            if window_of(one) then
                spend(window_of(one), 1)
            end
            one.given = one.given + 1
            lease(one, { found.job.id })
            return
        end
    end
end

advance()
local room = LIMIT
if limiter then
    room = math.min(room, room_in(limiter))
end
while room > 0 do
    local one = pop()
    if not one then
        if given == 0 and ALONE == 1 then
            take_suspect()
        end
        break
    end
    if one.waiting == 0 then
        if one.more then
            if not holds(one) then
                push(one)
            end
            break -- Owed: nobody is served past it, and `hungry` names it.
        end
        compete(one)
    else
        room = room - serve(one, math.min(room, one.waiting))
    end
end
if given > 0 then
    call_many('ZADD', P .. ':active', leased)
    call('ZREM', P .. ':sleepers', ARGV[4])
    if limiter then
        spend(limiter, given)
    end
elseif SLEEPS_UNTIL > 0 then
    call('ZADD', P .. ':sleepers', SLEEPS_UNTIL, ARGV[4])
    answer[1] = next_moment(limiter)
end
if limiter then
    S.limited = math.max(0, limiter.given)
end
save_windows()
return finish(answer)
